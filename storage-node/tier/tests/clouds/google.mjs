// Google Cloud Storage for tests: fake-gcs-server, and in front of it what it lacks of the XML API, as Google documents it: objects
// written by PUT, with x-goog-if-generation-match, and in parts; callers who prove by a token that they have the key of a service account.
//   node google.mjs PORT SERVER_PORT BUCKET CREDENTIALS [PAUSE_MS]
// Makes the bucket and the file CREDENTIALS, and listens once both are there. Conditions are checked by fake-gcs-server; what is
// read, listed and deleted is passed on to it as it came. With PAUSE_MS a name takes no other write or delete so soon after a write,
// whatever its condition: Google promises one a second.
import { createHash, generateKeyPairSync, randomUUID, verify } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { setTimeout as pause } from "node:timers/promises";

const [port, serverPort, bucket, credentials, pauseMs = "0"] = process.argv.slice(2);
const server = `http://127.0.0.1:${serverPort}`;
const PART_BYTES_MIN = 5 << 20;
const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
/** Parts by upload and number. */
const uploads = new Map();
/** When each object was written. */
const written = new Map();

class Refusal extends Error {
  constructor(status, code) {
    super(code);
    this.status = status;
  }
}

/** The token is signed with our key, is meant for this, and has not expired. */
function authenticate({ authorization = "" }) {
  const [head, claims, signature] = authorization.replace("Bearer ", "").split(".");
  const isOurs = signature && verify("RSA-SHA256", `${head}.${claims}`, publicKey, Buffer.from(signature, "base64url"));
  if (!isOurs) throw new Refusal(401, "AuthenticationRequired");
  const { exp, scope } = JSON.parse(Buffer.from(claims, "base64url"));
  if (exp * 1000 < Date.now() || !scope.includes("cloud-platform")) throw new Refusal(403, "AccessDenied");
}

function takeTurn(object) {
  if (Date.now() - written.get(object) < Number(pauseMs)) throw new Refusal(429, "SlowDown");
}

/** Writes an object through the JSON API; `generation` is the one that must be there, 0 for none. */
async function put(object, body, type, generation) {
  takeTurn(object);
  // It heeds the condition of this kind of upload only.
  const query = new URLSearchParams({ uploadType: "multipart", name: object });
  if (generation !== undefined) query.set("ifGenerationMatch", generation);
  const edge = randomUUID();
  const metadata = `--${edge}\r\nContent-Type: application/json\r\n\r\n${JSON.stringify({ name: object })}\r\n`;
  const parts = [metadata, `--${edge}\r\nContent-Type: ${type}\r\n\r\n`, body, `\r\n--${edge}--\r\n`];
  const answer = await fetch(`${server}/upload/storage/v1/b/${bucket}/o?${query}`, {
    method: "POST",
    body: Buffer.concat(parts.map((part) => Buffer.from(part))),
    headers: { "Content-Type": `multipart/related; boundary=${edge}` },
  });
  if (answer.status === 412) throw new Refusal(412, "PreconditionFailed");
  if (!answer.ok) throw new Refusal(500, "InternalError");
  written.set(object, Date.now());
  const { etag, generation: made } = await answer.json();
  return { ETag: `"${etag}"`, "x-goog-generation": made };
}

/** What the parts that a list names are together. */
function joined(parts, list) {
  const bodies = [...list.matchAll(/<Part>.*?<\/Part>/gs)].map(([named]) => {
    const part = parts.get(/<PartNumber>(\d+)/.exec(named)?.[1]);
    if (part?.tag !== /<ETag>([^<]+)/.exec(named)?.[1]) throw new Refusal(400, "InvalidPart");
    return part.body;
  });
  if (bodies.length === 0) throw new Refusal(400, "MalformedCompleteMultipartUploadRequest");
  if (bodies.slice(0, -1).some(({ length }) => length < PART_BYTES_MIN)) throw new Refusal(400, "EntityTooSmall");
  return Buffer.concat(bodies);
}

async function answer(incoming, body) {
  const { method, headers, url } = incoming;
  authenticate(headers);
  const { pathname, searchParams } = new URL(url, server);
  const [, inBucket, ...rest] = pathname.split("/").map(decodeURIComponent);
  const [object, upload] = [rest.join("/"), searchParams.get("uploadId")];
  if (inBucket !== bucket) throw new Refusal(404, "NoSuchBucket");
  if (upload !== null && !uploads.has(upload)) throw new Refusal(404, "NoSuchUpload");
  if (method === "PUT" && upload === null) {
    return { headers: await put(object, body, headers["content-type"], headers["x-goog-if-generation-match"]) };
  }
  if (method === "PUT") {
    const tag = `"${createHash("md5").update(body).digest("hex")}"`;
    uploads.get(upload).set(searchParams.get("partNumber"), { tag, body });
    return { headers: { ETag: tag } };
  }
  if (method === "POST" && searchParams.has("uploads")) {
    const id = randomUUID();
    uploads.set(id, new Map());
    const fields = `<Bucket>${bucket}</Bucket><Key>${object}</Key><UploadId>${id}</UploadId>`;
    return { body: `<InitiateMultipartUploadResult>${fields}</InitiateMultipartUploadResult>` };
  }
  if (method === "POST" && upload !== null) {
    const made = await put(object, joined(uploads.get(upload), body.toString()), "application/octet-stream");
    uploads.delete(upload);
    const fields = `<Bucket>${bucket}</Bucket><Key>${object}</Key><ETag>${made.ETag}</ETag>`;
    return { headers: made, body: `<CompleteMultipartUploadResult>${fields}</CompleteMultipartUploadResult>` };
  }
  if (method === "DELETE" && upload !== null) {
    uploads.delete(upload);
    return { status: 204 };
  }
  if (method === "DELETE") takeTurn(object);
  return null;
}

function passOn(incoming, outgoing) {
  const { method, url } = incoming;
  const headers = { ...incoming.headers, host: new URL(server).host };
  const ours = request(server + url, { method, headers }, (answer) => {
    // Google's has no body.
    const status = method === "DELETE" && answer.statusCode === 200 ? 204 : answer.statusCode;
    outgoing.writeHead(status, status === 204 ? {} : answer.headers);
    if (status === 204) answer.resume().on("end", () => outgoing.end());
    else answer.pipe(outgoing);
  });
  ours.on("error", () => outgoing.destroy());
  ours.end();
}

async function serve(incoming, outgoing) {
  // Who gives an upload up hangs up in the middle of a part.
  const chunks = await incoming.toArray().catch(() => null);
  if (chunks === null) return outgoing.destroy();
  try {
    const own = await answer(incoming, Buffer.concat(chunks));
    if (own === null) return passOn(incoming, outgoing);
    outgoing.writeHead(own.status ?? 200, own.headers).end(own.body ?? "");
  } catch (error) {
    const xml = `<?xml version='1.0' encoding='UTF-8'?><Error><Code>${error.message}</Code></Error>`;
    outgoing.writeHead(error.status ?? 500, { "Content-Type": "application/xml" }).end(xml);
  }
}

const makeBucket = () =>
  fetch(`${server}/storage/v1/b`, { method: "POST", body: JSON.stringify({ name: bucket }) }).then(({ ok }) => ok, () => false);
while (!(await makeBucket())) await pause(20);
const key = {
  type: "service_account",
  client_email: "weir@test.iam.gserviceaccount.com",
  private_key_id: "1",
  private_key: privateKey.export({ type: "pkcs8", format: "pem" }),
};
writeFileSync(credentials, JSON.stringify(key));
createServer(serve).listen(port, "127.0.0.1");
