"""Cut the cells of BCCD into class folders, from which the picture of the README was made.

    python tools/cut_cells.py BCCD cells
    provnet train cells --size 96 --holdout 0.2 --out runs/cells
    provnet explain runs/cells test:3 test:100 test:140 --png cells.png

BCCD is a folder in the layout of Pascal VOC (MIT licence), JPEGImages and Annotations. Each box is widened by a tenth
and cut as a square; boxes at the edge of their photograph are left out, and at most 304 cells of a class are kept.
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from PIL import Image

NAMES = {"RBC": "red cell", "WBC": "white cell", "Platelets": "platelet"}
MOST, LEAST = 304, 24  # cells of a class; pixels of a side


def cut(source: Path, out: Path) -> Counter[str]:
    """Write one PNG per cell into a folder per class, and count them."""
    kept: Counter[str] = Counter()
    for file in sorted((source / "Annotations").glob("*.xml")):
        photograph = Image.open(source / "JPEGImages" / f"{file.stem}.jpg")
        for number, thing in enumerate(ElementTree.parse(file).iter("object")):
            name = NAMES[thing.findtext("name", "")]
            left, top, right, bottom = (int(thing.findtext(f"bndbox/{side}", "0")) for side in SIDES)
            half = round(max(right - left, bottom - top) * 0.55)
            x, y = (left + right) // 2, (top + bottom) // 2
            box = (x - half, y - half, x + half, y + half)
            inside = box[0] >= 0 and box[1] >= 0 and box[2] <= photograph.width and box[3] <= photograph.height
            if inside and 2 * half >= LEAST and kept[name] < MOST:
                kept[name] += 1
                (out / name).mkdir(parents=True, exist_ok=True)
                photograph.crop(box).save(out / name / f"{file.stem}-{number}.png")
    return kept


SIDES = ("xmin", "ymin", "xmax", "ymax")

if __name__ == "__main__":
    sys.stdout.write(f"{dict(cut(Path(sys.argv[1]), Path(sys.argv[2])))}\n")
