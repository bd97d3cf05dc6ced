// What the load tests share: publishing over HTTP and WebSocket, following, and reading everything back at the end.
// Every message is {id, at}: an id that no other has, and when it was due.
import { check } from 'k6';
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';
import { WebSocket } from 'k6/websockets';

export const BASE = __ENV.WEIR_URL;
export const STAGES = ['gw', 'net', 'queue', 'write', 'fsync', 'quorum', 'total'];
const stages = Object.fromEntries(STAGES.map((stage) => [stage, new Trend(`weir_${stage}_ms`)]));
export const confirmed = new Counter('weir_confirmed');
const refused = new Counter('weir_refused');
const unknown = new Counter('weir_outcome_unknown');
const readBack = new Counter('weir_read_back');
const wrong = new Counter('weir_read_back_wrong');
const delivered = new Counter('weir_delivered');
const misplaced = new Counter('weir_delivered_misplaced');
const deliver = new Trend('weir_deliver_ms', true);
const confirmTime = new Trend('weir_confirm_ms', true);
const JSON_TYPE = { 'Content-Type': 'application/json' };

// Thresholds that hold whatever the load: every confirmed message is there, once, and was delivered in its place.
export const ALWAYS = {
  checks: ['rate==1'],
  weir_confirmed: ['count>0'],
  weir_read_back: ['count>0'],
  weir_read_back_wrong: ['count==0'],
};
export const FOLLOWED = { weir_delivered: ['count>0'], weir_delivered_misplaced: ['count==0'] };

const UNITS = { h: 3600, m: 60, s: 1, ms: 0.001 };
export function seconds(text) {
  const parts = [...text.matchAll(/([\d.]+)(ms|h|m|s)/g)];
  if (parts.map(([part]) => part).join('') !== text) throw new Error(`a duration is like 90s or 1m30s, not ${text}`);
  return Math.ceil(parts.reduce((sum, [, count, unit]) => sum + Number(count) * UNITS[unit], 0));
}

// A number from the environment, between bounds: no load test runs away.
export function setting(name, value, [least, most]) {
  const found = Number(__ENV[name] || value);
  if (!(found >= least && found <= most)) throw new Error(`${name} is from ${least} to ${most}, not ${__ENV[name]}`);
  return found;
}

export function createTopic(name, partitions = 1) {
  const topic = `${name}-${Date.now()}`;
  const made = http.put(`${BASE}/v1/topics/${topic}`, JSON.stringify({ partitions }), { headers: JSON_TYPE });
  check(made, { 'topic created': (answer) => answer.status === 201 });
  return topic;
}

// Publishes one message. A refusal has to say that it had no effect; it is not a failure of its own.
export function publish(topic, id) {
  const at = Date.now();
  const sent = http.post(`${BASE}/v1/topics/${topic}/messages`, JSON.stringify({ id, at }), {
    headers: JSON_TYPE,
    tags: { name: 'publish' },
    responseCallback: http.expectedStatuses(201, 429, 503),
  });
  if (sent.status === 201) {
    confirmed.add(1);
    confirmTime.add(Date.now() - at);
    timing(sent.headers['Server-Timing'] || '');
    return true;
  }
  if (sent.status === 429 || sent.status === 503) {
    refused.add(1);
    check(sent, { 'refused without effect': (answer) => answer.json('outcome') === 'none' });
  } else {
    unknown.add(1);
    check(sent, { 'confirmed or refused': () => false });
  }
  return false;
}

function timing(header) {
  for (const [, stage, ms] of header.matchAll(/(\w+);dur=([\d.]+)/g)) if (stages[stage]) stages[stage].add(Number(ms));
}

function connect(onwelcome, onframe) {
  const socket = new WebSocket(`${BASE.replace('http', 'ws')}/v1/ws`, 'weir.v1.json');
  const send = (frame) => socket.send(JSON.stringify(frame));
  socket.onopen = () => send({ t: 'hello', v: 1, client: 'k6', batch: true });
  socket.onerror = (event) => check(event, { 'the WebSocket works': () => false });
  socket.onmessage = ({ data }) => {
    for (const frame of data.split('\n').map((line) => JSON.parse(line))) {
      if (frame.t === 'welcome') onwelcome(send);
      else if (frame.t === 'ping') send({ t: 'pong', id: frame.id });
      else if (frame.t === 'err' || frame.t === 'reject') check(frame, { 'no refusal': () => false });
      else onframe(frame, send);
    }
  };
  return socket;
}

// Publishes `rate` messages a second over one WebSocket for `lasting` seconds, at most `window` unconfirmed. They count
// from when they were due, sent or not.
export function publishOverWebSocket(topic, by, rate, lasting, window = 1000) {
  const due = [];
  const start = Date.now();
  let [sent, done, limit] = [0, 0, 0];
  const total = rate * lasting;
  const pump = (send) => {
    const upTo = Math.min(total, Math.floor(((Date.now() - start) * rate) / 1000));
    for (; sent < Math.min(upTo, done + window, limit); sent++) {
      due.push(start + ((sent + 1) * 1000) / rate);
      send({ t: 'pub', ch: 1, seq: sent, ct: 'application/json', data: { id: `${by}:${sent}`, at: due[sent] } });
    }
  };
  let timer;
  const socket = connect(
    (send) => send({ t: 'open', ch: 1, topic, confirm: ['quorum'] }),
    (frame, send) => {
      if (frame.t === 'opened') {
        limit = frame.pub_limit.msgs;
        timer = setInterval(() => pump(send), 5);
      } else if (frame.t === 'pub_limit') {
        limit = frame.msgs;
      } else if (frame.t === 'confirm' && frame.level === 'quorum' && frame.upto !== null) {
        confirmed.add(frame.upto + 1 - done);
        for (; done <= frame.upto; done++) confirmTime.add(Math.max(0, Date.now() - due[done]));
        for (const [stage, us] of Object.entries(frame.us || {})) if (stages[stage]) stages[stage].add(us / 1000);
      }
      if (done >= total) finish();
    },
  );
  const finish = () => {
    clearInterval(timer);
    socket.close();
  };
  setTimeout(() => {
    check(done, { 'everything was confirmed': (count) => count >= total });
    finish();
  }, (lasting + 10) * 1000);
}

// Follows a topic of one partition over a WebSocket from its beginning, within credit. `until` is when publishing is
// over; it ends when it has everything that was there two seconds later, and may have what came later still.
export function follow(topic, until, credit = 400) {
  let [next, end] = [0, Infinity];
  const limit = () => ({ msgs: next + credit, bytes: (next + credit) * 10000 });
  const socket = connect(
    (send) => send({ t: 'sub', ch: 1, topic, from: 'earliest', limit: limit() }),
    (frame, send) => {
      const before = next;
      for (const msg of frame.msgs || (frame.t === 'msg' ? [frame] : [])) {
        if (msg.o !== next) misplaced.add(1);
        next = msg.o + 1;
        delivered.add(1);
        deliver.add(Math.max(0, Date.now() - msg.data.at));
      }
      if (Math.floor(before / (credit / 4)) !== Math.floor(next / (credit / 4))) send({ t: 'limit', ch: 1, ...limit() });
      if (next >= end) socket.close();
    },
  );
  const left = Math.max(0, until - Date.now());
  setTimeout(() => {
    end = http.get(`${BASE}/v1/topics/${topic}`, { tags: { name: 'topic' } }).json().partitions[0].end;
    if (next >= end) socket.close();
  }, left + 2000);
  setTimeout(() => {
    check(next, { 'everything was delivered': (count) => count >= end });
    socket.close();
  }, left + 12000);
}

// The same with long polls over HTTP.
export function poll(topic, until) {
  let next = 0;
  for (let end = Infinity; next < end; ) {
    const url = `${BASE}/v1/topics/${topic}/messages?from=${next}&limit=1000&wait=1`;
    const page = http.get(url, { tags: { name: 'poll' } });
    if (!check(page, { polled: (answer) => answer.status === 200 || answer.status === 204 })) return;
    const messages = page.status === 200 ? page.json().messages : [];
    for (const { offset, data } of messages) {
      if (offset !== next) misplaced.add(1);
      next = offset + 1;
      delivered.add(1);
      deliver.add(Math.max(0, Date.now() - data.at));
    }
    if (Date.now() > until + 2000 && end === Infinity) {
      end = http.get(`${BASE}/v1/topics/${topic}`, { tags: { name: 'topic' } }).json().partitions[0].end;
    }
    if (Date.now() > until + 12000) {
      check(next, { 'everything was delivered': (count) => count >= end });
      return;
    }
  }
}

// Reads a whole topic: offsets are dense, every id is there once. scripts/loadtest compares the count with what was
// confirmed.
export function readAll(topic) {
  const parts = http.get(`${BASE}/v1/topics/${topic}`).json().partitions.length;
  const seen = new Set();
  for (let partition = 0; partition < parts; partition++) {
    for (let next = 0, upToDate = false; !upToDate; ) {
      const url = `${BASE}/v1/topics/${topic}/messages?partition=${partition}&from=${next}&limit=5000`;
      const page = http.get(url, { tags: { name: 'read' } }).json();
      page.messages.forEach(({ offset, data }, i) => {
        if (offset !== next + i || seen.has(data.id)) wrong.add(1);
        seen.add(data.id);
      });
      next = page.next;
      upToDate = page.up_to_date;
    }
  }
  readBack.add(seen.size);
}
