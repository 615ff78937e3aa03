"""What one request, and all of them together, may take; one place for every number."""

from __future__ import annotations

UPLOAD = 10_000_000  # bytes of a body, counted while it comes in
JSON = 4_000_000  # bytes of a JSON body: a selection of some hundred thousand samples
DEPTH = 16  # of nested JSON
PIXELS = 40_000_000  # of an uploaded picture
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF")  # kinds of uploaded pictures
K = 50  # exemplars of an explanation
WITHOUT = 32  # samples left out of one explanation
BATCH = 64  # pictures judged in one request
CREDITED = 500  # test samples that one request shares the credit for
PAGE = 500  # samples of one list
SHEET = 500  # thumbnails of one sheet
TILE = 256  # longest side of a thumbnail
KEPT_THUMBS = 5_000  # thumbnails of large pictures kept in memory: some 12 KB each
LARGE = 2_048  # longest side at which an uploaded picture is kept to be looked at
TEXT = 20_000  # characters of a text that is asked about
WORDS, FEW_WORDS = 4_000, 60  # characters that are shown of a text, and at exposure `thumb`
TAG = 60  # characters of a tag
SIMILAR = 500  # samples of one search
DECIDED = 5_000  # samples of one decision
LISTED = 10_000  # decisions of one list
UPLOADS = 256  # pictures kept in memory
SELECTIONS = 32  # selections kept in memory
HEADERS = 100  # lines of headers
HEADER_BYTES = 32_768  # of all headers, and of an address
IN_FLIGHT = 48  # requests that are worked on; more are told to come back
BODY_SECONDS = 30.0  # for a body to come in
HEADER_SECONDS = 10.0  # for the headers
RETRY = 1  # seconds until a refused client may come back
ATTEMPTS = 10  # wrong tokens a minute before they are answered by 429
THUMB = 32  # longest side of a picture at exposure `thumb`
DRAIN = 0.25  # seconds in which requests that are on their way are still taken after SIGTERM
STOP = 10  # seconds that requests in flight may take after that

EXPOSURES = ("ids", "thumb", "full")
