// node store-beside.mjs URL BYTES_PER_SECOND: what sealing asks of a store, asked by a program that has nothing else to do. Objects of
// 8 MiB go to URL, which takes them from anybody, in pieces of 64 KiB at 60 MiB/s, and are read back; until it is stopped.
import http from "node:http";
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const [url, rate] = [process.argv[2], Number(process.argv[3])];
const size = 8 << 20;
const pace = 60 << 20;
const names = 16;
const piece = randomBytes(64 << 10);
const agent = new http.Agent({ keepAlive: true });

const answered = (request) =>
  new Promise((resolve, reject) => {
    request.on("error", reject).on("response", (response) => {
      response.on("error", reject).on("end", () => (response.statusCode === 200 ? resolve() : reject(new Error(`the store says ${response.statusCode}`)))).resume();
    });
  });

async function put(object) {
  const request = http.request(object, { method: "PUT", agent, headers: { "content-length": size } });
  const done = answered(request);
  const began = performance.now();
  for (let sent = 0; sent < size; sent += piece.length) {
    const early = began + (1000 * sent) / pace - performance.now();
    if (early > 1) await sleep(early);
    request.write(piece);
  }
  request.end();
  await done;
}

const began = performance.now();
for (let n = 0; ; n++) {
  const early = began + (1000 * n * size) / rate - performance.now();
  if (early > 0) await sleep(early);
  const object = `${url}/${n % names}`;
  await put(object);
  await answered(http.request(object, { agent }).end());
}
