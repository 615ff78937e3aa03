"""Types of the API's fields: strict where JSON is, and the same in the schema as in the check."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from provnet.samples.identity import SampleTable
from provnet_app.pixels import Distortion


def _whole(value: Any) -> Any:
    """JSON knows one kind of number: 27.0 is a whole one; text and true are none."""
    if isinstance(value, bool | str):
        raise ValueError("a whole number is needed")
    if isinstance(value, float) and not value.is_integer():
        raise ValueError("a whole number is needed")
    return value


def _digits(value: Any) -> Any:
    """An address holds text alone; of what Python takes for a number (7_0, +7, " 7", 7.0) only digits are taken."""
    if isinstance(value, str) and not re.fullmatch("[0-9]{1,16}", value):
        raise ValueError("a whole number is needed, in digits alone")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError("a number is needed")
    return value


def _clean(value: str) -> str:
    if "\0" in value or any(0xD800 <= ord(character) <= 0xDFFF for character in value):
        raise ValueError("NUL and lone surrogates are not taken")
    return value


Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Weights = Literal["plain", "joint"]  # the index branch's own shares, or P(class) times the share within the class
WHOLE = BeforeValidator(_whole)
NUMBER = BeforeValidator(_number)
DIGITS = BeforeValidator(_digits)  # for whole numbers in an address
Name = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00]+$"), AfterValidator(_clean)]


class Strict(BaseModel):
    """What comes in: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Interval(BaseModel):
    """A figure with its 95 % interval; `why` where there is none."""

    value: float | None
    low: float | None
    high: float | None
    n: int | None
    why: str | None = None


class Label(BaseModel):
    """A class."""

    class_: Annotated[int, Field(alias="class")]
    label: str

    model_config = ConfigDict(populate_by_name=True)


class Named(Label):
    """A training sample by its position, id and hash, with its class."""

    index: int
    sample_id: str
    sha256: str


def naming(samples: SampleTable, place: int) -> dict[str, Any]:
    """The fields of `Named` for the sample at a position."""
    number = int(samples.labels[place])
    return {
        "index": place,
        "sample_id": samples.sample_ids[place],
        "sha256": samples.hex(place),
        "class_": number,
        "label": samples.class_names[number],
    }


class Distort(Strict):
    """How the query is distorted before it is explained."""

    noise: Annotated[float, Field(ge=0, le=1), NUMBER] = 0.0
    shift_x: Annotated[float, Field(ge=-0.5, le=0.5), NUMBER] = 0.0
    shift_y: Annotated[float, Field(ge=-0.5, le=0.5), NUMBER] = 0.0
    rotation: Annotated[float, Field(ge=-180, le=180), NUMBER] = 0.0
    blur: Annotated[float, Field(ge=0, le=10), NUMBER] = 0.0
    occlusion: Annotated[float, Field(ge=0, le=1), NUMBER] = 0.0
    occlusion_x: Annotated[float, Field(ge=0, le=1), NUMBER] = 0.5
    occlusion_y: Annotated[float, Field(ge=0, le=1), NUMBER] = 0.5
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), WHOLE] = 0

    def made(self) -> Distortion:
        """The same as the record that `app.distort` takes."""
        return Distortion(**{name: getattr(self, name) for name in Distort.model_fields})


def rounded(value: float, digits: int) -> float:
    """A finite number with so many decimals.

    >>> rounded(0.98765, 2)
    0.99
    """
    if not math.isfinite(value):
        raise ValueError("a figure is not finite")
    return round(float(value), digits)
