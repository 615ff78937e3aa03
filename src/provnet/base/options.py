"""Every option: its name, help, default and check. Command line, Python and the app are made from these classes.

Nothing here imports torch or numpy, so that help and wrong usage are answered at once. A field that carries an `option`
is a flag or a word of the command line (`provnet.cli.flags`); any other is for Python alone. None means that nothing
was asked for: the preset, the data or the machine decides.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar, final, get_type_hints

from provnet.base.errors import UsageError, did_you_mean, one_of

SUBSET = "subset"  # among a run's settings: which samples are indexed
DECISIONS = "decisions"  # among the options of a DataSpec: what was decided about samples

HEADS = ("plain", "exemplar", "exemplar-trained")
KEY_TYPES = ("fp32", "bf16", "int8")

Test = Callable[[str, Any], None]  # the name of an option as people write it, and a value that is not None


@final
@dataclass(frozen=True)
class Option:
    """How a field is written on the command line.

    Attributes:
        help: what it does.
        name: the flag, where that is not the name of the field.
        short: a letter that says the same as a longer name.
        metavar: what stands for its value.
        check: refuses values.
        folder: whether it names a folder to write, which must not be empty.
        rare: whether only --help-all shows it.
        word: whether it is a word without a flag.
    """

    help: str
    name: str = ""
    short: str = ""
    metavar: str | None = None
    check: Test | None = None
    folder: bool = False
    rare: bool = False
    word: bool = False


@final
@dataclass(frozen=True)
class Leaf:
    """One option of a class: `path` leads to it through the classes that it is made of."""

    path: tuple[str, ...]
    hint: Any
    option: Option
    default: Any  # MISSING where one has to be given
    panel: str | None

    @property
    def name(self) -> str:
        """The name of the field."""
        return self.path[-1]

    @property
    def flag(self) -> str:
        """How people write it.

        >>> [one.flag for one in leaves(Explain)][:4]
        ['RUN', 'IMAGE', '-k', '--data']
        """
        if self.option.word:
            return str(self.option.metavar)
        return self.option.name or f"{'--' if len(self.name) > 1 else '-'}{self.name.replace('_', '-')}"


class Options:
    """What the classes below have in common: values are checked when they are given."""

    panel: ClassVar[str | None] = None  # the heading that its options stand under
    example: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for one in leaves(type(self)):
            if len(one.path) == 1 and one.option.check is not None:  # parts have checked their own
                value = getattr(self, one.name)
                if value is not None:
                    one.option.check(one.flag, value)


Kind = TypeVar("Kind", bound=Options)


def with_changes(kind: type[Kind], options: Kind | None, changes: dict[str, Any]) -> Kind:
    """The options of a call: those given, else the defaults, with the changes that are given by name.

    >>> with_changes(CreditOptions, None, {"k": 3}).k
    3
    """
    allowed = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    for name in changes:
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise UsageError(f'there is no option "{name}" here; allowed: {", ".join(allowed)}.{hint}')
    if not isinstance(options, kind | None):
        given = type(options).__name__
        raise UsageError(f"options must be {kind.__name__}, got {given}; single ones are given by name")
    found: Kind = replace(kind() if options is None else options, **changes)  # type: ignore[type-var]
    return found


def parts(kind: type[Options]) -> dict[str, type[Options]]:
    """The fields of a class that are such classes themselves.

    >>> list(parts(Train))
    ['recipe', 'network', 'opening', 'split', 'subset', 'where']
    """
    return {
        name: hint
        for name, hint in get_type_hints(kind).items()
        if isinstance(hint, type) and issubclass(hint, Options)
    }


def leaves(kind: type[Options]) -> tuple[Leaf, ...]:
    """The options of a class that the command line has, in order, those of its parts among them."""
    found: list[Leaf] = []
    hints, inner = get_type_hints(kind), parts(kind)
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name in inner:
            found += [replace(part, path=(one.name, *part.path)) for part in leaves(inner[one.name])]
        elif OPTION in one.metadata:
            found.append(Leaf((one.name,), hints[one.name], one.metadata[OPTION], one.default, kind.panel))
    return tuple(found)


OPTION = "option"  # of the metadata of a field


def option(words: str, default: Any = None, **more: Any) -> Any:
    """A field that is a flag."""
    return field(default=default, metadata={OPTION: Option(words, **more)})


def argument(words: str, metavar: str, default: Any = MISSING) -> Any:
    """A field that is a word of the command line."""
    return option(words, default, metavar=metavar, word=True)


def _out(words: str, metavar: str = "DIR", default: Any = MISSING) -> Any:
    """--out."""
    return option(words, default, name="--out", short="-o", metavar=metavar, folder=True)


def _seed(words: str, most: int = 2**63 - 1, of: str = "") -> Any:
    """--seed, in the range that training takes too, or in a smaller one."""

    def check(name: str, value: int) -> None:
        check_number(name, value, whole=True)
        if not 0 <= value < 2**63:
            raise UsageError(f"{name} must lie in 0..2^63-1, got {value}")
        if value > most:
            raise UsageError(f"{name} must lie in 0..2^{(most + 1).bit_length() - 1}-1{of}, got {value}")

    return option(words, 0, check=check)


def _run() -> Any:
    """RUN."""
    return argument("A run folder, as train wrote it.", metavar="RUN")


def _data_dir(*, rare: bool = False) -> Any:
    """--data-dir."""
    words = "Folder that data set names resolve under. Default: $PROVNET_DATA, else ./data."
    return option(words, metavar="DIR", rare=rare)


def _training_data() -> Any:
    """Where a run's training data are."""
    return option("Where the training data are now. Default: where they were.", metavar="DATA")


def _device() -> Any:
    """--device."""
    return option("Where to compute. Default: auto.", metavar="auto|cpu|cuda")


def _weights() -> Any:
    """--weights."""
    words = "The index branch's own shares, or P(class) times the share within the class."
    return option(words, "plain", metavar="plain|joint")


def _json() -> Any:
    """--json."""
    return option("Print JSON on stdout, and nothing else there.", default=False)


def at_least(least: int) -> Test:
    """Refuse what is less."""

    def check(name: str, value: int) -> None:
        check_number(name, value, whole=True)
        if value < least:
            raise UsageError(f"{name} must be {least} or more, got {value}")

    return check


def between(least: int, most: int) -> Test:
    """Refuse what lies outside."""

    def check(name: str, value: int) -> None:
        if not least <= value <= most:
            raise UsageError(f"{name} must lie in {least}..{most}, got {value}")

    return check


def probability(name: str, value: float) -> None:
    """Refuse 0, which everything reaches, and what is no probability."""
    if not 0 < value <= 1:
        raise UsageError(f"{name} must lie above 0 and be at most 1, got {value}")


def megabytes(name: str, value: float) -> None:
    """Refuse sizes that no page has."""
    if not 0.1 <= value <= 1000:
        raise UsageError(f"{name} must lie between 0.1 and 1000 (MB), got {value:g}")


def pause(name: str, value: float) -> None:
    """Refuse times that are none."""
    if not 0 <= value < float("inf"):
        raise UsageError(f"{name} must be 0 or more, got {value}")


def sides(name: str, value: Any) -> None:
    """Refuse text that `parse_size` cannot read."""
    if isinstance(value, str):
        parse_size(value, name)


def parse_size(text: str, name: str = "--size") -> tuple[int, int]:
    """`64` or `64x48` (height x width).

    >>> parse_size("64"), parse_size("64x48")
    ((64, 64), (64, 48))
    """
    found = text.lower().split("x")
    if len(found) > 2 or not all(side.isascii() and side.isdigit() for side in found):
        raise UsageError(f'{name} takes a number of pixels or HEIGHTxWIDTH, such as 64 or 64x48; got "{text}"')
    return int(found[0]), int(found[-1])


def check_number(name: str, value: Any, *, whole: bool = False) -> None:
    """Refuse what is no number."""
    if not isinstance(value, numbers.Integral if whole else numbers.Real):
        what = "a whole number" if whole else "a number"
        raise UsageError(f"{name} must be {what}, got {value!r}; leave it out for the usual value")


def check_network(asked: Any, heads: tuple[str, ...] = HEADS) -> None:
    """Refuse what no network can have, whatever the data are."""
    for name, whole in (("alpha", False), ("level", True), ("key_width", True)):
        check_number(name, getattr(asked, name), whole=whole)
    if not isinstance(asked.conditional, bool):
        raise UsageError(f"conditional must be True or False, got {asked.conditional!r}")
    if not 0 <= asked.alpha <= 1:
        raise UsageError(f"alpha must lie in [0, 1], 0 for no label mixing; got {asked.alpha}")
    one_of("head", asked.head, heads)
    one_of("key_type (--keys)", asked.key_type, KEY_TYPES)
    if not 0 <= asked.key_width <= 4096:
        raise UsageError(
            f"key_width (--key-width) must be a whole number from 0 to 4096, 0 to choose it; got {asked.key_width}"
        )


@dataclass(frozen=True, kw_only=True)
class Demo(Options):
    """Train on 4,000 digits, evaluate, explain ten others, find planted wrong labels; leave a page to open."""

    out: Path = _out("Folder of the run and the report.", "RUN", default=Path("runs/demo"))
    seed: int = _seed("Seed of the training.")

    example: ClassVar[str] = "provnet demo --out runs/demo"


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """How data are read, and which of them."""

    panel: ClassVar[str | None] = "Data"

    size: Any = option(
        "Size of the network's view, such as 64 or 64x48. Default: as found; 224 or 64 where sizes differ.",
        metavar="N|HxW",
        check=sides,
    )
    fit: str | None = option(
        "How a picture of another shape becomes that size. Default: stretch, which cuts nothing.",
        metavar="stretch|pad|crop",
        rare=True,
    )
    mode: str | None = option("Default: as found.", metavar="grey|rgb", rare=True)
    background: str | None = option("Behind transparency. Default: white.", metavar="COLOUR", rare=True)
    frame: int | None = option("Which picture of animated or multi-page files.", rare=True)
    value_range: tuple[float, float] | None = option(
        "Values of 16-bit and float pictures.", metavar="LOW HIGH", rare=True
    )
    data_dir: str | None = _data_dir(rare=True)
    root: str | None = option(
        "Folder that a manifest's paths are relative to. Default: that of the CSV file.", metavar="DIR", rare=True
    )
    skip_bad: bool = option("Leave bad files out and count them.", default=False, rare=True)
    cache: str | None = option(
        "Keep decoded pictures for the next opening. Default: $PROVNET_CACHE, else none.", metavar="DIR", rare=True
    )
    limit: int | None = option("At most so many samples of each split, evenly by class.", rare=True)
    columns: Any = option(
        "Which columns of a table hold what, such as path=image,label=class.", metavar="WHAT=NAME,...", rare=True
    )
    length: int | None = option("Bytes of a text that the network sees. Default: 2,048.", metavar="N", rare=True)
    class_names: Any = None  # the classes and their order
    default_size: int | None = None  # of the network's view where sizes differ and none is asked for
    progress: bool = False


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Options):
    """What a run is tested on, and decisions about its samples."""

    panel: ClassVar[str | None] = "Data"

    holdout: float | None = option(
        "Hold out a fraction of each class for testing, chosen by content.", metavar="FRACTION"
    )
    test: str | None = option(
        "Test on these data: their test split, else all of them. Default: the test split of the training data.",
        metavar="DATA",
    )
    apply: Path | None = option(
        "Decisions of `provnet debug --review`, edited: samples to keep, relabel or drop.", metavar="CSV", rare=True
    )


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(Options):
    """Which network is trained. A backbone may also be a module of your own, of which a copy is trained."""

    panel: ClassVar[str | None] = "Network and recipe"

    network: str = option(
        "single, class-independent, class-conditional or class-conditional-heads.", "class-conditional", metavar="NAME"
    )
    backbone: Any = option(
        "text, efficientnet-lite0 (pretrained, extra vision), small, medium, residual, mlp, paper, paper-single, one "
        "of app. 7.6, or the folder of a Hugging Face model (./folder). auto: by the data and the machine.",
        "auto",
        metavar="NAME|DIR/",
    )
    head: str = option(
        "Index head: the paper's output layer, or one key per training sample. auto: by preset.",
        "auto",
        metavar="auto|plain|exemplar|exemplar-trained",
    )
    key_type: str = option(
        "How an exemplar head stores its keys.", "fp32", name="--keys", metavar="fp32|bf16|int8", rare=True
    )
    key_width: int = option("Numbers of a key. 0: the backbone's features, if at most 512.", 0, metavar="D", rare=True)
    alpha: float = option("Label mixing: probability that another sample of the class is the target.", 0.0, rare=True)
    conditional: bool = option("Give the class to the index branch (class-conditional).", True, rare=True)
    level: int = option("Sharing level 1 to 4 of the backbones of app. 7.6.", 3, rare=True)

    def __post_init__(self) -> None:
        check_network(self, ("auto", *HEADS))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class RecipeOptions(Options):
    """How it is trained. With the task `generate` a generator brings its own network."""

    panel: ClassVar[str | None] = "Network and recipe"

    task: str = option(
        "What to learn: to tell classes, or to make pictures.",
        default="classify",
        metavar="classify|generate",
        rare=True,
    )
    generator: str | None = option(
        "With --task generate: the paper's VAE, its fully connected one for faces, or ours. Default: modern.",
        metavar="paper|faces|modern",
        rare=True,
    )
    preset: str | None = option("Recipe. Default: default.", metavar="default|fast|paper|robust")
    epochs: int | None = option("Default: by preset.")
    batch_size: int | None = option("2 to 1,000,000. Default: by preset.", rare=True)
    lr: float | None = option("Highest learning rate. Default: by preset.", rare=True)
    finetune: bool = option("Train a pretrained backbone, too. Default: it is frozen.", default=False, rare=True)
    augment: str | None = option(
        "Train on changed copies that keep their index: tiny, digits, photos, noise. Default: by preset.",
        metavar="none|auto|NAME",
        rare=True,
    )
    seed: int | None = option("Default: 0.")


@dataclass(frozen=True, kw_only=True)
class SubsetOptions(Options):
    """An index over some samples."""

    panel: ClassVar[str | None] = "Index over some samples"

    index_subset: str | None = option(
        "Index only so many samples; every class keeps at least one. Default: all.", metavar="30%|N", rare=True
    )
    select: str | None = option(
        "Which samples: drawn by the seed (default), near k-means centres, of smallest margin, far apart.",
        metavar="stratified|prototypes|boundary|diverse",
        rare=True,
    )
    select_from: Path | None = option(
        "Select by this run's features. Default: a class branch alone, trained quickly.", metavar="RUN", rare=True
    )
    subset_classes_on: str | None = option(
        "What the class branch learns from. Default: all; for a single branch subset.", metavar="all|subset", rare=True
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """Where a run is written, and where and how it is computed."""

    panel: ClassVar[str | None] = "The run"

    device: str = option("Where to compute.", "auto", metavar="auto|cpu|cuda")
    devices: int = option("Processes to train with.", 1, rare=True)
    checkpoint_seconds: float = option("Time between checkpoints.", 60.0, metavar="S", check=pause, rare=True)
    overwrite: bool = option("Replace the run in RUN.", default=False)
    resume: bool = option("Go on with the run in RUN, under the same settings.", default=False)
    out: Path | str | None = None  # the command line gives its own
    progress: bool = False
    recorded: bool = True

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise UsageError("--resume goes on with a run, --overwrite replaces it; give one of them")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class Train(Options):
    """Train a network on DATA and write a run folder. Killed or stopped, it goes on with --resume."""

    data: str = argument(
        "A name (embedded, digits, mnist, fashion-mnist, cifar10, cifar100, lfw, stanford-dogs) or a path: "
        "image folder, .npz, CSV manifest, folder of idx or CIFAR files.",
        metavar="DATA",
    )
    out: Path = _out("Folder of the run.", "RUN")
    recipe: RecipeOptions = field(default_factory=RecipeOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    opening: DataOptions = field(default_factory=DataOptions)
    split: SplitOptions = field(default_factory=SplitOptions)
    subset: SubsetOptions = field(default_factory=SubsetOptions)
    where: RunOptions = field(default_factory=RunOptions)
    json: bool = _json()

    example: ClassVar[str] = "provnet train mnist --data-dir data --out runs/mnist"


@dataclass(frozen=True, kw_only=True)
class Evaluate(Options):
    """Measure class accuracy on unseen data, and how well a run names its own training samples.

    All figures are also written to evaluation.json in the run folder, those on the run's own data into its model card,
    too; --json prints the chief ones.
    """

    run: Path = _run()
    data: str | None = argument(
        "Name or path of data to test on (their test split where they have one). Default: the run's own.",
        metavar="DATA",
        default=None,
    )
    train_data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    seed: int = _seed("Of the noise and shifts.")
    json: bool = _json()

    example: ClassVar[str] = "provnet evaluate runs/mnist --json"


@dataclass(frozen=True, kw_only=True)
class Explain(Options):
    """Explain inputs by the training samples behind each answer, or say that none supports it."""

    run: Path = _run()
    image: list[str] = argument(
        "Picture files, test:12 or test:0..9 (positions in the run's own test split), .npy or .npz arrays.",
        metavar="IMAGE",
    )
    k: int = option("Exemplars for each input.", default=5)
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    json: bool = _json()
    html: Path | None = option("Write a page that needs nothing else.", metavar="FILE")
    png: Path | None = option("Write a contact sheet.", metavar="FILE")
    log: Path | None = option("Append each decision to a hash-chained log (JSON lines).", metavar="FILE")
    weights: str = _weights()
    strict: bool = option("Refuse where an exemplar changed or is missing, or values are out of range.", default=False)

    example: ClassVar[str] = "provnet explain runs/mnist digit.png test:0..4 --html because.html"


@dataclass(frozen=True, kw_only=True)
class Generate(Options):
    """Make pictures with a run of `train --task generate`, and name the training samples behind each.

    Writes report.html, sheet.png (a row a picture, the first 48), generated.json, and every picture as a PNG file.
    """

    run: Path = _run()
    out: Path = _out("Folder to write to.")
    n: int = option("How many pictures.", default=16)
    label: str | None = option("Of this class alone. Default: of any.", metavar="NAME")
    seed: int = _seed("The same seed gives the same pictures.")
    k: int = option("Training samples for each picture.", default=5)
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet generate runs/vae -n 16 --label 7 --out made"


@dataclass(frozen=True, kw_only=True)
class Interpolate(Options):
    """Go from one picture to another through the latents of a run that makes pictures; the sources change on the way.

    Writes report.html, sheet.png (a row a step), path.gif (there and back) and path.json.
    """

    run: Path = _run()
    first: str = argument("A picture file, or test:12.", metavar="IMAGE")
    last: str = argument("Another one.", metavar="IMAGE")
    out: Path = _out("Folder to write to.")
    steps: int = option("Pictures on the way, both ends included.", default=9)
    k: int = option("Training samples for each picture.", default=5)
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet interpolate runs/vae test:0 test:1 --out path"


@dataclass(frozen=True, kw_only=True)
class Debug(Options):
    """Look for wrong labels, anomalies and duplicates among the training samples of a run.

    Writes samples.csv (every sample), report.html, corrected.csv, and relabel.csv for a run with a test split.

    A run that kept its history of losses (every run that train writes) is judged by the course of its training, also
    where the network has memorised its wrong labels.
    """

    run: Path = _run()
    out: Path = _out("Folder for the files.")
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    threshold: float = option(
        "Flag labels whose probability of being wrong is at least this.", default=0.5, metavar="P", check=probability
    )
    certainty: float = option(
        "Labels are replaced in corrected.csv where the suggested one is right with at least this probability.",
        default=0.9,
        metavar="P",
        check=probability,
    )
    top: int = option("Suspects shown in the report.", default=60, metavar="N", check=at_least(0))
    review: bool = option(f"Write {DECISIONS} too: suggestions to edit, for `provnet train --apply`.", default=False)
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet debug runs/mnist --out debugged --review"


@dataclass(frozen=True, kw_only=True)
class Fix(Options):
    """Correct wrong labels in the description of a run's data, train again beside the run, and say what changed.

    Your files and the run stay as they are. The new run is trained with the same seed and settings, compared with the
    old one on the same test samples, and holds a file that says what was changed.
    """

    run: Path = _run()
    out: Path | None = _out("Folder of the new run.", metavar="NEW", default=None)
    decisions: Path | None = option(
        f"{DECISIONS} of `provnet debug --review`, edited. Default: suggestions that are certain.", metavar="FILE"
    )
    certainty: float = option(
        "Without decisions: labels are replaced where the suggested one is right with at least this probability.",
        default=0.9,
        metavar="P",
        check=probability,
    )
    leave_out: bool = option(
        "Without decisions: leave out flagged samples whose suggestion is not certain, and those of no class.",
        default=False,
    )
    undo: bool = option(
        "RUN is one that fix has made: say which run it came from, and what was changed.", default=False
    )
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet fix runs/pets --out runs/pets-fixed"


@dataclass(frozen=True, kw_only=True)
class ToolOptions(Options):
    """What every question about a run takes; `progress` shows a bar on stderr where it takes long."""

    progress: bool = False


@dataclass(frozen=True, kw_only=True)
class InputOptions(ToolOptions):
    """What a question about inputs takes.

    `warn` gives a UserWarning for values that cannot lie in the range trained on; off where they were looked at before.
    """

    warn: bool = True


@dataclass(frozen=True, kw_only=True)
class AuditOptions(InputOptions):
    """How a run is audited; `batch_size` None chooses by the size of the pictures."""

    distort: bool = option("Also distorted copies of both.", default=True)
    seed: int = _seed("Of draws and distortions.")
    batch_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Audit(Options):
    """Measure how well the run tells its training pictures from others: ROC, AUC, hits at few false alarms.

    Writes audit.json and report.html into DIR, and into the run folder the scores that `provnet member` compares with.
    """

    run: Path = _run()
    out: Path = _out("Folder of the report.")
    members: str | None = option(
        "Pictures that were trained on (their train split). Default: the run's own data.", metavar="DATA"
    )
    nonmembers: str | None = option(
        "Pictures that were not (their test split). Default: the run's test split.", metavar="DATA"
    )
    null: Path | None = option("A run that saw neither. Default: the same network, weights drawn anew.", metavar="RUN")
    limit: int = option("At most so many of each, drawn by the seed.", default=10000, metavar="N", check=at_least(2))
    how: AuditOptions = field(default_factory=AuditOptions)
    figure: Path | None = option("Also one figure for print: .png, .pdf or .svg (matplotlib).", metavar="FILE")
    card: bool = option("Write the figures into the run's model card.", default=True)
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet audit runs/mnist --out audit"


@dataclass(frozen=True, kw_only=True)
class Member(Options):
    """Say of pictures whether the run was trained on them, on distorted copies of them, or not.

    Names the training sample that matches, and whether bytes, pixels or only the content agree.
    """

    run: Path = _run()
    image: list[str] = argument(
        "Picture files, .npy or .npz arrays, or test:12 and test:0..9 of the run's test split.", metavar="IMAGE..."
    )
    nonmembers: str | None = option(
        "Pictures that were never trained on, to compare with. Default: what an audit kept, else the test split.",
        metavar="DATA",
    )
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet member runs/mnist picture.png --json"


@dataclass(frozen=True, kw_only=True)
class RobustnessOptions(ToolOptions):
    """How a run is distorted and attacked."""

    epsilon: float = option("Largest change by an attack, on pixels from 0 to 1.", default=0.1)
    attacked: int = option("Test samples that are attacked.", default=1000, metavar="N")
    seed: int = _seed("Of all draws.")


@dataclass(frozen=True, kw_only=True)
class Robustness(Options):
    """Measure what survives distortion: answers, and the training samples named for them.

    A run whose index branch was not trained (index_weight 0) is the isolated CNN that the others are compared with.
    Writes robustness.json, robustness.csv, report.html, conditions.png and, with matplotlib, heatmap.png, curves.png.
    """

    run: list[Path] = argument("Run folders, as train wrote them.", metavar="RUN...")
    out: Path = _out("Folder of the report.")
    data: str | None = option("Test data, name or path. Default: the first run's own test split.", metavar="DATA")
    data_dir: str | None = _data_dir()
    conditions: str | None = option("Only these, such as blur-1,occlusion-4. Default: all 15.", metavar="NAME,NAME")
    attacks: str = option("Extra rows: fgsm, pgd, or none.", default="fgsm,pgd", metavar="NAME,NAME")
    how: RobustnessOptions = field(default_factory=RobustnessOptions)
    limit: int | None = option("At most so many test samples, evenly spread.", metavar="N", check=at_least(1))
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet robustness runs/cnn runs/a0 runs/a05 --out robust"


@dataclass(frozen=True, kw_only=True)
class MapOptions(ToolOptions):
    """How samples are laid out; `threads` is for openTSNE."""

    groups: int = option("Groups inside each class (k-means).", default=5, metavar="K", check=at_least(1))
    limit: int | None = option("At most so many samples, evenly by class.", metavar="N", check=at_least(1))
    perplexity: float = option("Of t-SNE: about how many neighbours count.", default=30.0)
    engine: str = option(
        "What makes the map. auto: openTSNE where installed.", default="auto", metavar="auto|openTSNE|scikit-learn"
    )
    seed: int = _seed("Of t-SNE and k-means.", most=2**32 - 1, of=" for a map")
    threads: int = 2


@dataclass(frozen=True, kw_only=True)
class Map(Options):
    """Draw a map of a run's training samples, with groups inside classes and misattributed test samples.

    Writes report.html (interactive, one file), map.csv and, with matplotlib, map.png.
    """

    run: Path = _run()
    out: Path = _out("Folder of the map.")
    data: str | None = _training_data()
    test: str | None = option("Test data for misattributed samples, or none. Default: the run's own.", metavar="DATA")
    data_dir: str | None = _data_dir()
    how: MapOptions = field(default_factory=MapOptions)
    cards: int = option("Misattributed samples shown with their exemplars.", default=24, metavar="N", check=at_least(0))
    size: float = option(
        "Size that the page may have; thumbnails get the rest.", default=14.5, metavar="MB", check=megabytes
    )
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet map runs/mnist --out map"


@dataclass(frozen=True, kw_only=True)
class CreditOptions(InputOptions):
    """How credit is counted.

    Attributes:
        draws: of the queries, which give the intervals.
        batch_size: queries that go through the network at a time; None chooses by their size.
    """

    k: int = option("Count only the k largest weights of each query. 0: all.", default=0)
    weights: str = _weights()
    seed: int = _seed("Of the draws that give the intervals.")
    draws: int = 2000
    batch_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Credit(Options):
    """Share the credit for the answers to some queries among the contributors of the training samples.

    Queries without a supporting sample credit nobody and are counted apart; withheld samples are never credited.
    """

    run: Path = _run()
    queries: list[str] = argument(
        "Data (name, folder, .npz), pictures (files or a folder), .npy arrays, test:0..99 (the test split).",
        metavar="QUERIES",
    )
    by: Path | None = option(
        "CSV with sample_id,contributor. Default: the sources that the training data have.", metavar="FILE"
    )
    out: Path | None = _out("Folder for report.html, credit.json and credit.csv.", default=None)
    how: CreditOptions = field(default_factory=CreditOptions)
    top: int = option("Leading contributors whose samples are shown.", default=8, metavar="N")
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet credit runs/mnist test:0..199 --by sources.csv --out credit"


@dataclass(frozen=True, kw_only=True)
class CopyOptions(InputOptions):
    """How images are traced."""

    k: int = option("Exemplars for each image.", default=5)
    false_alarms: float = option(
        "Share of fresh pictures that may be flagged as near-copies.", default=0.005, metavar="RATE"
    )
    seed: int = _seed("Of the pictures that the threshold is set on.")


@dataclass(frozen=True, kw_only=True)
class Attribute(Options):
    """Trace images from any generator to training samples, or abstain; flag near-copies of one training image.

    The threshold for near-copies is set on real pictures that are no copies, to a stated rate of false alarms.
    """

    run: Path = _run()
    folder: list[str] = argument(
        "Folders of pictures, picture files, .npy or .npz arrays; from any generator.", metavar="FOLDER"
    )
    out: Path | None = _out("Folder for report.html, attribution.json, attribution.csv, sources.csv.", default=None)
    how: CopyOptions = field(default_factory=CopyOptions)
    heldout: str | None = option(
        "Real pictures that were never trained on, for the threshold. Default: the run's test split, else "
        "training pictures each against all others.",
        metavar="DATA",
    )
    top: int = option("Images, near-copies and sources shown on the page.", default=24, metavar="N")
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet attribute runs/mnist samples/ --out traced"


@dataclass(frozen=True, kw_only=True)
class CheckOptions(InputOptions):
    """How much is checked."""

    limit: int = option("At most so many pictures of each kind.", default=2000, metavar="N", check=at_least(20))
    seed: int = _seed("Of draws, strangers and weights drawn anew.")


@dataclass(frozen=True, kw_only=True)
class Check(Options):
    """Check whether a run's explanations can be trusted, and write the outcome into its model card.

    A bar that is not met is an outcome, not an error: the exit code is 0. With --out a report and all figures are
    written.
    """

    run: Path = _run()
    out: Path | None = _out("Folder for report.html and check.json.", default=None)
    other: list[str] | None = option(
        "Other data that the run should abstain on; may be given again and again.", metavar="DATA"
    )
    left_out: Path | None = option(
        "A run trained the same way without some classes: does it abstain on those?", metavar="RUN"
    )
    test: str | None = option("Unseen data of the run's own kind. Default: its own test split.", metavar="DATA")
    data: str | None = _training_data()
    card: bool = option("Write the outcome into the run's model card.", default=True)
    how: CheckOptions = field(default_factory=CheckOptions)
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet check runs/mnist --other fashion-mnist --out checked"


@dataclass(frozen=True, kw_only=True)
class Add(Options):
    """Add samples to a run with an exemplar head, each with the key that the network gives it; nothing is trained.

    Pictures are read by the rules that the training data were read with. Shape, range and classes must be the run's.
    """

    run: Path = _run()
    data: str = argument("Name or path of the data, as for train.", metavar="DATA")
    split: str = option("Which part of the data.", default="train", metavar="train|test|all")
    limit: int | None = option("At most so many samples, evenly by class.")
    skip_bad: bool = option("Leave bad files out and count them.", default=False)
    skip_known: bool = option("Leave out samples whose pixels the run has already.", default=False)
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet add runs/mnist more-digits --skip-known"


@dataclass(frozen=True, kw_only=True)
class Withhold(Options):
    """Withhold samples of a run with an exemplar head: explanations no longer name them, and others take their share.

    They stay in the files and can be restored, unless erased. What the network learned from them stays in its weights.
    """

    run: Path = _run()
    ids: list[str] | None = option("A sample id; may be given again and again.", name="--id", metavar="ID")
    file: Path | None = option("A text file (UTF-8) with one sample id a line.", name="--list", metavar="FILE")
    erase: bool = option("Take key, id, hashes, label, path, source and losses out of all files.", default=False)
    restore: bool = option("Name these samples again.", default=False)
    json: bool = _json()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.erase and self.restore:
            raise UsageError("--erase takes samples out for good, --restore names them again; give one of them")

    example: ClassVar[str] = "provnet withhold runs/mnist --id train/12 --id train/40 --erase"


@dataclass(frozen=True, kw_only=True)
class Verify(Options):
    """Check every hash of a run, and whether its training data are the same, re-ordered, moved, decoded differently,
    edited or others.

    Exit code 0 if all is well, 6 if not, 7 if a file is unsafe to open.
    """

    run: Path = _run()
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    no_data: bool = option("Check the run's files alone.", default=False)
    strict: bool = option("Fail also where data are re-ordered, moved or not there.", default=False)
    json: bool = _json()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.no_data and (self.data is not None or self.strict):
            raise UsageError("--no-data checks the files alone; leave --data and --strict out")

    example: ClassVar[str] = "provnet verify runs/mnist --data /mnt/data/mnist"


@dataclass(frozen=True, kw_only=True)
class Info(Options):
    """Show what a run is: network, data, settings, versions, and its evaluation if there is one."""

    run: Path = _run()
    json: bool = _json()

    example: ClassVar[str] = "provnet info runs/mnist"


@dataclass(frozen=True, kw_only=True)
class Reproduce(Options):
    """Run the cells of an experiment that are not kept yet, and put the results beside the paper's numbers.

    Writes DIR/NAME.json, NAME.md and, with matplotlib, NAME.png; smaller scales into a folder of their own.
    """

    name: str = argument(
        "table2, table2-ours, cost, mixing, subsets, sharing, robustness, membership, debugging, embeddings, "
        "vae, instance, or all.",
        metavar="NAME",
    )
    scale: str = option(
        "tiny: embedded digits, a minute on a CPU; small: 5,000 samples; full: as in the paper.",
        default="full",
        metavar="tiny|small|full",
    )
    seeds: int | None = option("Seeds 0 to N - 1. Default: 3, of tiny 1.", metavar="N")
    only: list[str] | None = option(
        "Only this cell, or all whose names begin so, such as mnist; repeatable.", metavar="CELL"
    )
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    out: Path = _out("Folder of the results; finished cells there are kept.", default=Path("results"))
    jobs: int = option("Cells at a time, in processes of their own.", default=1, metavar="N")
    seconds: float | None = option("Stop after about so long; the same command goes on with what is left.", metavar="S")
    networks: Path | None = option("Keep trained networks there, and take those that are there already.", metavar="DIR")
    json: bool = _json()

    example: ClassVar[str] = "provnet reproduce table2 --scale tiny"


@dataclass(frozen=True, kw_only=True)
class App(Options):
    """Look at a run in the browser: explain, clean the data, see the map, check membership.

    The page is served on this machine alone and needs the token of the printed link. Ctrl-C ends it.
    """

    run: Path = _run()
    port: int | None = option(
        "Port on 127.0.0.1. Default: 8808, or any free one.", metavar="N", check=between(0, 65535)
    )
    exposure: str | None = option(
        "How much of the pictures is shown. Default: full for runs trained here, ids for others.",
        metavar="ids|thumb|full",
    )
    no_browser: bool = option("Print the address, open nothing.", default=False)
    beside: Path | None = option("Another run of the same data, to compare the answers of both.", metavar="RUN")
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()

    example: ClassVar[str] = "provnet app runs/mnist"
