// Node's decoders; see run.sh.
const fs = require('fs');
const zlib = require('zlib');

const expected = fs.readFileSync('expected');

function tell(name, file, decode) {
  let what;
  try {
    const got = decode(fs.readFileSync(file));
    what = got.equals(expected) ? 'all' : got.length === 0 ? 'taken' : 'FIRST ONLY';
  } catch (error) {
    what = 'refused';
  }
  console.log(`Node, ${name}: ${file.split('.')[0]}: ${what}`);
}

for (const body of ['two', 'probe']) {
  tell('zlib.gunzipSync', `${body}.gz`, (data) => zlib.gunzipSync(data));
  if (zlib.zstdDecompressSync) {
    tell('zlib.zstdDecompressSync', `${body}.zst`, (data) => zlib.zstdDecompressSync(data));
  }
}
