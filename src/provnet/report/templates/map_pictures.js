// Thumbnails: a sheet is unpacked, off this thread, when one of its pictures is first wanted; the last 48 are kept.
const thumbnails = (data, arrived) => {
  const sheets = new Map(), perSheet = data.across * data.across;

  function sheetOf(i, then) {
    const number = Math.floor(i / perSheet);
    let sheet = sheets.get(number);
    if (!sheet) {
      sheet = { picture: null, then: [] };
      const image = new Image(), made = sheet;
      image.src = data.sheets[number];
      image.decode().then(() => createImageBitmap(image)).then((picture) => {
        made.picture = picture;
        arrived();
        for (const one of made.then.splice(0)) one();
      }).catch(() => failed("Some thumbnails of this file cannot be read: ids stand for them. provnet map makes it anew."));
      if (sheets.size >= 48) sheets.delete(sheets.keys().next().value);
    }
    sheets.delete(number);
    sheets.set(number, sheet);
    if (!sheet.picture && then) sheet.then.push(then);
    return sheet.picture;
  }

  function drawFrom(on, sheet, i, x, y, size) {
    const slot = i % perSheet, side = data.side;
    on.imageSmoothingEnabled = false;
    on.drawImage(sheet, (slot % data.across) * side, Math.floor(slot / data.across) * side, side, side, x, y, size, size);
  }

  // a picture of its own, drawn once its sheet is there
  function picture(i, size) {
    const small = document.createElement("canvas");
    small.width = small.height = size;
    small.setAttribute("role", "img");
    small.setAttribute("aria-label", data.ids[i]);
    const put = () => { const sheet = sheetOf(i, put); if (sheet) drawFrom(small.getContext("2d"), sheet, i, 0, 0, size); };
    put();
    return small;
  }
  return { sheetOf, drawFrom, picture };
};
