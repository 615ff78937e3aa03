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
        raise UsageError(f"options must be {kind.__name__}, got {given}; give single options by name")
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
    return argument("A run folder that train wrote.", metavar="RUN")


def _data_dir(*, rare: bool = False) -> Any:
    """--data-dir."""
    words = "Folder in which data sets are looked up by name. Default: $PROVNET_DATA, else ./data."
    return option(words, metavar="DIR", rare=rare)


def _training_data() -> Any:
    """Where a run's training data are."""
    return option("Where the training data are now. Default: where they were.", metavar="DATA")


def _device() -> Any:
    """--device."""
    return option("Where to compute. Default: auto.", metavar="auto|cpu|cuda")


def _weights() -> Any:
    """--weights."""
    words = (
        "plain: shares of the index branch. joint: P(class) times the share within the class. influence: how much the "
        "answer depends on each sample; needs provnet influence RUN."
    )
    return option(words, "plain", metavar="plain|joint|influence")


def _json() -> Any:
    """--json."""
    return option("Print JSON on stdout and nothing else.", default=False)


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


def check_chance(name: str, value: float) -> None:
    """Refuse 0, which everything reaches, and what is no probability."""
    if not 0 < value <= 1:
        raise UsageError(f"{name} must lie above 0 and be at most 1, got {value}")


def check_megabytes(name: str, value: float) -> None:
    """Refuse sizes that no page has."""
    if not 0.1 <= value <= 1000:
        raise UsageError(f"{name} must lie between 0.1 and 1000 (MB), got {value:g}")


def check_seconds(name: str, value: float) -> None:
    """Refuse times that are none."""
    if not 0 <= value < float("inf"):
        raise UsageError(f"{name} must be 0 or more, got {value}")


def check_sides(name: str, value: Any) -> None:
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
        raise UsageError(f"{name} must be {what}, got {value!r}; leave it out for the default")


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
        check=check_sides,
    )
    fit: str | None = option(
        "How pictures are brought to that size. Default: stretch, which cuts nothing off.",
        metavar="stretch|pad|crop",
        rare=True,
    )
    mode: str | None = option("Grey or colour. Default: as found.", metavar="grey|rgb", rare=True)
    background: str | None = option("Colour behind transparent pixels. Default: white.", metavar="COLOUR", rare=True)
    frame: int | None = option("Which frame or page of files that hold several, from 0.", rare=True)
    value_range: tuple[float, float] | None = option(
        "Lowest and highest value of 16-bit and float pictures.", metavar="LOW HIGH", rare=True
    )
    data_dir: str | None = _data_dir(rare=True)
    root: str | None = option(
        "Folder that the paths in a manifest are relative to. Default: the folder of the CSV file.",
        metavar="DIR",
        rare=True,
    )
    skip_bad: bool = option("Leave out files that cannot be read, and count them.", default=False, rare=True)
    cache: str | None = option(
        "Keep decoded pictures for the next opening. Default: $PROVNET_CACHE, else none.", metavar="DIR", rare=True
    )
    limit: int | None = option(
        "Use at most this many samples of each split, spread evenly over the classes.", rare=True
    )
    columns: Any = option(
        "Names of the columns of a table, such as path=image,label=class.", metavar="WHAT=NAME,...", rare=True
    )
    length: int | None = option(
        "Number of bytes of a text that the network sees. Default: 2,048.", metavar="N", rare=True
    )
    class_names: Any = None  # the classes and their order
    default_size: int | None = None  # of the network's view where sizes differ and none is asked for
    progress: bool = False


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Options):
    """What a run is tested on, and decisions about its samples."""

    panel: ClassVar[str | None] = "Data"

    holdout: float | None = option(
        "Hold out this fraction of each class for testing, chosen by content.", metavar="FRACTION"
    )
    test: str | None = option(
        "Data to test on: their test split, or all of them if they have none. Default: the test split of DATA.",
        metavar="DATA",
    )
    apply: Path | None = option(
        "Edited decisions of `provnet debug --review`: samples to keep, relabel or drop.", metavar="CSV", rare=True
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
    key_width: int = option(
        "Length of a key. 0: as many as the backbone has features, up to 512.", 0, metavar="D", rare=True
    )
    alpha: float = option("Label mixing: probability that another sample of the class is the target.", 0.0, rare=True)
    conditional: bool = option("Feed the class to the index branch (class-conditional networks).", True, rare=True)
    level: int = option("Sharing level 1 to 4 of the backbones of app. 7.6.", 3, rare=True)

    def __post_init__(self) -> None:
        check_network(self, ("auto", *HEADS))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class RecipeOptions(Options):
    """How it is trained. With the task `generate` a generator brings its own network."""

    panel: ClassVar[str | None] = "Network and recipe"

    task: str = option(
        "What the network learns: to classify, or to generate pictures.",
        default="classify",
        metavar="classify|generate",
        rare=True,
    )
    generator: str | None = option(
        "With --task generate: the paper's VAE, its fully connected VAE for faces, or provnet's own. Default: modern.",
        metavar="paper|faces|modern",
        rare=True,
    )
    preset: str | None = option("Training recipe. Default: default.", metavar="default|fast|paper|robust")
    epochs: int | None = option("Passes over the training data. Default: by preset.")
    batch_size: int | None = option("Samples in a batch, 2 to 1,000,000. Default: by preset.", rare=True)
    lr: float | None = option("Highest learning rate. Default: by preset.", rare=True)
    finetune: bool = option("Also train the pretrained backbone. Default: it stays frozen.", default=False, rare=True)
    augment: str | None = option(
        "Train on changed copies of samples, which keep their index: tiny, digits, photos, noise. Default: by preset.",
        metavar="none|auto|NAME",
        rare=True,
    )
    seed: int | None = option("Seed of all random numbers. Default: 0.")


@dataclass(frozen=True, kw_only=True)
class SubsetOptions(Options):
    """An index over some samples."""

    panel: ClassVar[str | None] = "Index over some samples"

    index_subset: str | None = option(
        "How many samples are indexed; every class keeps at least one. Default: all.", metavar="30%|N", rare=True
    )
    select: str | None = option(
        "Which samples: drawn at random (default), near k-means centres, of smallest margin, or far apart.",
        metavar="stratified|prototypes|boundary|diverse",
        rare=True,
    )
    select_from: Path | None = option(
        "Select by the features of this run. Default: by those of a class branch that is trained quickly first.",
        metavar="RUN",
        rare=True,
    )
    subset_classes_on: str | None = option(
        "What the class branch learns from. Default: all; subset for a network with a single branch.",
        metavar="all|subset",
        rare=True,
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """Where a run is written, and where and how it is computed."""

    panel: ClassVar[str | None] = "The run"

    device: str = option("Where to compute.", "auto", metavar="auto|cpu|cuda")
    devices: int = option("Number of processes to train with.", 1, rare=True)
    checkpoint_seconds: float = option(
        "Seconds between checkpoints.", 60.0, metavar="S", check=check_seconds, rare=True
    )
    overwrite: bool = option("Replace the run that is in RUN.", default=False)
    resume: bool = option("Continue the run in RUN with the same settings.", default=False)
    snapshots: bool | None = option(
        "Keep the weights of some epochs, for influence. Default: if they take at most 200 MB.", rare=True
    )
    out: Path | str | None = None  # the command line gives its own
    progress: bool = False
    recorded: bool = True

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise UsageError("--resume continues a run, --overwrite replaces it; give one of them")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class Train(Options):
    """Train a network on DATA and write a run folder; --resume continues a stopped training."""

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

    Writes all figures to evaluation.json in the run folder, and those on the run's own data into its model card.
    --json prints the main ones.
    """

    run: Path = _run()
    data: str | None = argument(
        "Data to test on, by name or path (their test split if they have one). Default: the run's own.",
        metavar="DATA",
        default=None,
    )
    train_data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    seed: int = _seed("Seed of the noise and shifts.")
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
    k: int = option("Number of exemplars for each input.", default=5)
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    json: bool = _json()
    html: Path | None = option("Write an HTML page, complete in one file.", metavar="FILE")
    png: Path | None = option("Write a contact sheet as PNG.", metavar="FILE")
    log: Path | None = option("Append each decision to a hash-chained log (JSON lines).", metavar="FILE")
    weights: str = _weights()
    strict: bool = option(
        "Stop with an error if an exemplar changed or is missing, or if values are out of range.", default=False
    )

    example: ClassVar[str] = "provnet explain runs/mnist digit.png test:0..4 --html because.html"


@dataclass(frozen=True, kw_only=True)
class Generate(Options):
    """Generate pictures with a run of `train --task generate`, and name the training samples behind each.

    Writes report.html, sheet.png (one row per picture, the first 48), generated.json, and every picture as a PNG file.
    """

    run: Path = _run()
    out: Path = _out("Folder to write to.")
    n: int = option("Number of pictures.", default=16)
    label: str | None = option("Only pictures of this class. Default: of any class.", metavar="NAME")
    seed: int = _seed("The same seed gives the same pictures.")
    k: int = option("Number of training samples for each picture.", default=5)
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet generate runs/vae -n 16 --label 7 --out made"


@dataclass(frozen=True, kw_only=True)
class Interpolate(Options):
    """Interpolate between two pictures in the latents of a generator; show how the sources change.

    Writes report.html, sheet.png (one row per step), path.gif (there and back) and path.json.
    """

    run: Path = _run()
    first: str = argument("A picture file, or test:12.", metavar="IMAGE")
    last: str = argument("Another one.", metavar="IMAGE")
    out: Path = _out("Folder to write to.")
    steps: int = option("Number of pictures, both ends included.", default=9)
    k: int = option("Number of training samples for each picture.", default=5)
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet interpolate runs/vae test:0 test:1 --out path"


@dataclass(frozen=True, kw_only=True)
class Debug(Options):
    """Look for wrong labels, anomalies and duplicates among the training samples of a run.

    Writes samples.csv (every sample), report.html, corrected.csv, and relabel.csv for a run with a test split.

    A run with recorded losses (every run of train) is judged by them, so wrong labels are found even where the network
    has memorised them.
    """

    run: Path = _run()
    out: Path = _out("Folder for the files.")
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    threshold: float = option(
        "Flag labels whose probability of being wrong is at least this.", default=0.5, metavar="P", check=check_chance
    )
    certainty: float = option(
        "Correct a label in corrected.csv if the suggested label is right with at least this probability.",
        default=0.9,
        metavar="P",
        check=check_chance,
    )
    top: int = option("Number of suspects in the report.", default=60, metavar="N", check=at_least(0))
    review: bool = option(f"Also write {DECISIONS}: suggestions to edit, for `provnet train --apply`.", default=False)
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet debug runs/mnist --out debugged --review"


@dataclass(frozen=True, kw_only=True)
class Fix(Options):
    """Correct wrong labels in the description of a run's data, train a new run, and compare the two.

    Your files and the old run stay as they are. The new run has the same seed and settings, is compared on the same
    test samples, and holds a file that says what was changed.
    """

    run: Path = _run()
    out: Path | None = _out("Folder of the new run.", metavar="NEW", default=None)
    decisions: Path | None = option(
        f"Edited {DECISIONS} of `provnet debug --review`. Default: the suggestions that are certain.", metavar="FILE"
    )
    certainty: float = option(
        "Without --decisions: correct a label if the suggested label is right with at least this probability.",
        default=0.8,
        metavar="P",
        check=check_chance,
    )
    leave_out: bool = option(
        "Without --decisions: leave out flagged samples without a clear suggestion, and samples of no class.",
        default=True,
    )
    undo: bool = option("Say which run a run of fix came from and what was changed, and how to go back.", default=False)
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

    distort: bool = option("Also measure distorted copies of both.", default=True)
    seed: int = _seed("Seed of draws and distortions.")
    batch_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Audit(Options):
    """Measure how well the run tells its training pictures from others: ROC, AUC, hits at few false alarms.

    Writes audit.json and report.html into DIR, and into the run folder the scores that `provnet member` compares with.
    --shadow and --scores attack with shadow models instead (LiRA, RMIA, Attack-P); --scores takes those of any model.
    """

    run: Path | None = argument(
        "A run folder that train wrote; leave it out with --scores.", metavar="RUN", default=None
    )
    out: Path = _out("Folder of the report.")
    members: str | None = option(
        "Pictures that were trained on (their train split). Default: the run's own.", metavar="DATA"
    )
    nonmembers: str | None = option(
        "Pictures that were not (their test split). Default: the run's test split.", metavar="DATA"
    )
    null: Path | None = option(
        "A run that saw neither. Default: the same network with new random weights.", metavar="RUN"
    )
    shadow: list[Path] | None = option(
        "A run trained in the same way on other samples; may be repeated.", metavar="RUN"
    )
    scores: Path | None = option("Scores of any model and its shadows, .csv or .npz, in place of RUN.", metavar="FILE")
    limit: int = option(
        "At most this many pictures of each, drawn at random.", default=10000, metavar="N", check=at_least(2)
    )
    how: AuditOptions = field(default_factory=AuditOptions)
    figure: Path | None = option("Also draw a figure for print: .png, .pdf or .svg (needs matplotlib).", metavar="FILE")
    card: bool = option("Write the figures into the run's model card.", default=True)
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet audit runs/mnist --out audit"


@dataclass(frozen=True, kw_only=True)
class Member(Options):
    """Say whether the run was trained on given pictures, on distorted copies of them, or on neither.

    Names the training sample that matches, and says whether bytes, pixels or only the content agree.
    """

    run: Path = _run()
    image: list[str] = argument(
        "Picture files, .npy or .npz arrays, or test:12 and test:0..9 of the run's test split.", metavar="IMAGE..."
    )
    nonmembers: str | None = option(
        "Pictures that were never trained on, to compare with. Default: those of an audit, else the test split.",
        metavar="DATA",
    )
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet member runs/mnist picture.png --json"


@dataclass(frozen=True, kw_only=True)
class RobustnessOptions(ToolOptions):
    """How a run is distorted and attacked."""

    epsilon: float = option("Largest change of a pixel by an attack, on a scale from 0 to 1.", default=0.1)
    attacked: int = option("Number of test samples that are attacked.", default=1000, metavar="N")
    seed: int = _seed("Seed of all draws.")


@dataclass(frozen=True, kw_only=True)
class Robustness(Options):
    """Measure what survives distortion: answers, and the training samples named for them.

    A run whose index branch was not trained (index_weight 0) is the isolated CNN that the others are compared with.
    Writes robustness.json, robustness.csv, report.html, conditions.png and, with matplotlib, heatmap.png, curves.png.
    """

    run: list[Path] = argument("Run folders that train wrote.", metavar="RUN...")
    out: Path = _out("Folder of the report.")
    data: str | None = option("Test data, name or path. Default: the first run's own test split.", metavar="DATA")
    data_dir: str | None = _data_dir()
    conditions: str | None = option("Only these, such as blur,occlusion-4. Default: all 15.", metavar="NAME,NAME")
    attacks: str = option("Extra rows: fgsm, pgd, or none.", default="fgsm,pgd", metavar="NAME,NAME")
    how: RobustnessOptions = field(default_factory=RobustnessOptions)
    limit: int | None = option("Use at most this many test samples, evenly spread.", metavar="N", check=at_least(1))
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet robustness runs/cnn runs/a0 runs/a05 --out robust"


@dataclass(frozen=True, kw_only=True)
class MapOptions(ToolOptions):
    """How samples are laid out; `threads` is for openTSNE."""

    groups: int = option("Number of groups in each class (k-means).", default=5, metavar="K", check=at_least(1))
    limit: int | None = option(
        "Use at most this many samples, spread evenly over the classes.", metavar="N", check=at_least(1)
    )
    perplexity: float = option("Perplexity of t-SNE: about how many neighbours count.", default=30.0)
    engine: str = option(
        "Program that computes the map. auto: openTSNE if it is installed.",
        default="auto",
        metavar="auto|openTSNE|scikit-learn",
    )
    seed: int = _seed("Seed of t-SNE and k-means.", most=2**32 - 1, of=" for a map")
    threads: int = 2


@dataclass(frozen=True, kw_only=True)
class Map(Options):
    """Draw a map of a run's training samples, with groups inside classes and misattributed test samples.

    Writes report.html (interactive, one file), map.csv and, with matplotlib, map.png.
    """

    run: Path = _run()
    out: Path = _out("Folder of the map.")
    data: str | None = _training_data()
    test: str | None = option(
        "Test data to look for misattributed samples in, or none. Default: the run's own.", metavar="DATA"
    )
    data_dir: str | None = _data_dir()
    how: MapOptions = field(default_factory=MapOptions)
    cards: int = option(
        "Number of misattributed samples shown with their exemplars.", default=24, metavar="N", check=at_least(0)
    )
    size: float = option(
        "Largest size of the page; thumbnails take what is left.", default=14.5, metavar="MB", check=check_megabytes
    )
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet map runs/mnist --out map"


@dataclass(frozen=True, kw_only=True)
class InfluenceOptions(ToolOptions):
    """How influence keys are made.

    Attributes:
        ridge: of each layer's solve, in units of the mean squared length of a sample's gradient.
        sketch: numbers that a layer's gradient is cut to.
        whole: also keep the solved sketches of all samples.
    """

    width: int = option("Numbers per sample of the compact keys.", default=1024, metavar="N", check=at_least(1))
    ridge: float = 1.0
    sketch: int = 4096
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class Influence(Options):
    """Compute how much answers depend on each training sample, and keep in the run what that is computed from.

    Afterwards every command with --weights takes influence. It reads the training data once for each snapshot.
    """

    run: Path = _run()
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    how: InfluenceOptions = field(default_factory=InfluenceOptions)
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet influence runs/mnist"


@dataclass(frozen=True, kw_only=True)
class Without(Options):
    """Foretell what the answers to some queries would be without some training samples.

    With --retrain the network is trained again with and without them, and what was foretold stands beside what was
    found. Needs provnet influence RUN.
    """

    run: Path = _run()
    queries: list[str] = argument(
        "Data (name, folder, .npz), pictures (files or a folder), .npy arrays, test:0..99 (the test split).",
        metavar="QUERIES",
    )
    ids: list[str] | None = option("A sample id; may be repeated.", name="--id", metavar="ID")
    sources: list[str] | None = option(
        "All samples from this contributor; may be repeated.", name="--source", metavar="NAME"
    )
    retrain: int = option(
        "Train this many times with and without the samples.", default=0, metavar="N", check=at_least(0)
    )
    keep: bool = option("Keep the unit that --retrain finds in the run.", default=False)
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.retrain == 1:
            raise UsageError("--retrain must be 2 or more, as one training says nothing of how far trainings differ")
        if self.keep and not self.retrain:
            raise UsageError("--keep keeps what --retrain N finds; give both")

    example: ClassVar[str] = "provnet without runs/mnist test:0..9 --id train/12 --id train/40"


@dataclass(frozen=True, kw_only=True)
class CreditOptions(InputOptions):
    """How credit is counted.

    Attributes:
        draws: of the queries, which give the intervals.
        batch_size: queries that go through the network at a time; None chooses by their size.
    """

    k: int = option("Count only the k largest weights of each query; 0 counts all.", default=0)
    weights: str = _weights()
    seed: int = _seed("Seed of the draws that give the intervals.")
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
    top: int = option("Number of leading contributors whose samples are shown.", default=8, metavar="N")
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
        "Share of new pictures that may be flagged as near-copies by mistake.", default=0.005, metavar="RATE"
    )
    seed: int = _seed("Seed of the draw of pictures that set the threshold.")
    photos: bool = option(
        "Also find photographs that were cropped, mirrored, recoloured or put into a collage (extra vision): about "
        "0.15 s more per training picture on a CPU.",
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class Attribute(Options):
    """Trace images of any generator to training samples, or abstain; flag near-copies.

    Real pictures that are not copies set the threshold for near-copies, at a stated rate of false alarms.
    """

    run: Path = _run()
    folder: list[str] = argument(
        "Folders of pictures, picture files, .npy or .npz arrays; from any generator.", metavar="FOLDER"
    )
    out: Path | None = _out("Folder for report.html, attribution.json, attribution.csv, sources.csv.", default=None)
    how: CopyOptions = field(default_factory=CopyOptions)
    heldout: str | None = option(
        "Real pictures that were never trained on; they set the threshold. Default: the run's test split, else "
        "training pictures, each compared with all others.",
        metavar="DATA",
    )
    top: int = option("Number of images, near-copies and sources on the page.", default=24, metavar="N")
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet attribute runs/mnist samples/ --out traced"


@dataclass(frozen=True, kw_only=True)
class CheckOptions(InputOptions):
    """How much is checked."""

    limit: int = option("Use at most this many pictures of each kind.", default=2000, metavar="N", check=at_least(20))
    seed: int = _seed("Seed of draws, of made-up inputs and of random weights.")


@dataclass(frozen=True, kw_only=True)
class Check(Options):
    """Check whether a run's explanations can be trusted, and write the outcome into its model card.

    A bar that is not met is an outcome, not an error: the exit code is 0. --out writes a report and all figures.
    """

    run: Path = _run()
    out: Path | None = _out("Folder for report.html and check.json.", default=None)
    other: list[str] | None = option("Other data that the run should abstain on; may be repeated.", metavar="DATA")
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
    """Add samples to a run with an exemplar head, without training.

    Each sample gets the key that the network computes for it. Pictures are read as the training data were. Shape, range
    and classes must be those of the run.
    """

    run: Path = _run()
    data: str = argument("Name or path of the data, as for train.", metavar="DATA")
    split: str = option("Which part of the data.", default="train", metavar="train|test|all")
    limit: int | None = option("Use at most this many samples, spread evenly over the classes.")
    skip_bad: bool = option("Leave out files that cannot be read, and count them.", default=False)
    skip_known: bool = option("Leave out samples whose pixels are already in the run.", default=False)
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    json: bool = _json()

    example: ClassVar[str] = "provnet add runs/mnist more-digits --skip-known"


@dataclass(frozen=True, kw_only=True)
class Withhold(Options):
    """Withhold samples of a run with an exemplar head: explanations no longer name them.

    Other samples take their share. Withheld samples stay in the files and can be restored, unless erased. What the
    network learned from them stays in its weights.
    """

    run: Path = _run()
    ids: list[str] | None = option("A sample id; may be repeated.", name="--id", metavar="ID")
    file: Path | None = option("A text file (UTF-8) with one sample id per line.", name="--list", metavar="FILE")
    erase: bool = option(
        "Remove key, id, hashes, label, path, source and losses from all files, for good.", default=False
    )
    restore: bool = option("Name these samples again.", default=False)
    json: bool = _json()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.erase and self.restore:
            raise UsageError("--erase removes samples for good, --restore names them again; give one of them")

    example: ClassVar[str] = "provnet withhold runs/mnist --id train/12 --id train/40 --erase"


@dataclass(frozen=True, kw_only=True)
class Verify(Options):
    """Check every hash of a run, and whether its training data have changed; or the chain of a decision log (.jsonl).

    The data are the same, re-ordered, moved, edited, decoded differently or other data. Exit code 0 if all is well, 6
    if not, 7 if a file is unsafe to open.
    """

    run: Path = _run()
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    no_data: bool = option("Check only the files of the run.", default=False)
    strict: bool = option("Also fail if data are re-ordered, moved or missing.", default=False)
    json: bool = _json()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.no_data and (self.data is not None or self.strict):
            raise UsageError("--no-data checks only the files; leave --data and --strict out")

    example: ClassVar[str] = "provnet verify runs/mnist --data /mnt/data/mnist"


@dataclass(frozen=True, kw_only=True)
class Info(Options):
    """Show what a run is: network, data, settings, versions, and its evaluation if there is one."""

    run: Path = _run()
    json: bool = _json()

    example: ClassVar[str] = "provnet info runs/mnist"


@dataclass(frozen=True, kw_only=True)
class Reproduce(Options):
    """Run the cells of an experiment that have no result yet, and put the results beside the paper's numbers.

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
    seeds: int | None = option("Use seeds 0 to N - 1. Default: 3, or 1 at scale tiny.", metavar="N")
    only: list[str] | None = option(
        "Only this cell, or all cells whose names begin with this, such as mnist; may be repeated.", metavar="CELL"
    )
    data_dir: str | None = _data_dir()
    device: str | None = _device()
    out: Path = _out("Folder of the results; finished cells there are kept.", default=Path("results"))
    jobs: int = option("Number of cells that run at the same time, each in its own process.", default=1, metavar="N")
    seconds: float | None = option("Stop after about S seconds; the same command continues later.", metavar="S")
    networks: Path | None = option("Keep trained networks in this folder, and use those that are there.", metavar="DIR")
    json: bool = _json()

    example: ClassVar[str] = "provnet reproduce table2 --scale tiny"


@dataclass(frozen=True, kw_only=True)
class App(Options):
    """Look at a run in the browser: explain, clean the data, see the map, check membership.

    The page is served on this machine only and needs the token of the printed link. Ctrl-C ends it.
    """

    run: Path = _run()
    port: int | None = option(
        "Port on 127.0.0.1. Default: 8808, or any free one.", metavar="N", check=between(0, 65535)
    )
    exposure: str | None = option(
        "How much of each picture is shown. Default: full for runs trained in this folder, ids for others.",
        metavar="ids|thumb|full",
    )
    no_browser: bool = option("Print the address without opening a browser.", default=False)
    beside: Path | None = option("Another run of the same data, to compare answers with.", metavar="RUN")
    data: str | None = _training_data()
    data_dir: str | None = _data_dir()
    device: str | None = _device()

    example: ClassVar[str] = "provnet app runs/mnist"
