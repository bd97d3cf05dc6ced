/** `text` as a literal. Names come from the address of the page, and what stands there need not be one. */
const literal = (text: string) =>
  `'${JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;

/**
 * Publishes and follows within credit from a page, without a library. The README shows the same lines; a test holds
 * them together. `socket` is the address of the WebSocket.
 */
export function browserSnippet(socket: string, ns: string, topic: string): string {
  const where = `${ns === 'default' ? '' : `ns: ${literal(ns)}, `}topic: ${literal(topic)}`;
  return `const socket = new WebSocket(${literal(socket)}, 'weir.v1.json');
const send = (frame) => socket.send(JSON.stringify(frame));
let taken = 0;
socket.onopen = () => send({ t: 'hello', v: 1 });
socket.onmessage = ({ data }) => {
  const frame = JSON.parse(data);
  if (frame.t === 'welcome') {
    send({ t: 'sub', ch: 1, ${where}, from: 'earliest', limit: { msgs: 100, bytes: 1e6 } });
    send({ t: 'open', ch: 2, ${where} });
  }
  if (frame.t === 'opened') send({ t: 'pub', ch: 2, seq: 0, data: 'hello from the browser' });
  if (frame.t === 'confirm') console.log('confirmed at', frame.level, 'offset', frame.base[0].o);
  if (frame.t === 'ping') send({ t: 'pong', id: frame.id });
  for (const msg of frame.t === 'msgs' ? frame.msgs : frame.t === 'msg' ? [frame] : []) {
    console.log(msg.o, msg.data);
    taken += 1; // credit, as totals: what was taken may be followed by as much again
    send({ t: 'limit', ch: 1, msgs: taken + 100, bytes: (taken + 1) * 1e6 });
  }
};`;
}
