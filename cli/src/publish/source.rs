//! What is published: read on a thread of its own, a bounded number of chunks ahead.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal as _, Read};

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::args::PubArgs;
use crate::output;

/// Records in a chunk at most; fewer if the next line is not there yet.
pub(super) const CHUNK_RECORDS: usize = 256;
/// A chunk is complete at this many bytes.
const CHUNK_BYTES: usize = 192 << 10;
/// Chunks that are read ahead.
const CHUNKS_AHEAD: usize = 8;
/// A line, or a whole message, of more bytes cannot be a record.
const RECORD_BYTES_MAX: u64 = weir_protocol::limits::RECORD_BYTES_MAX as u64;

/// A record to be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Vec<u8>,
}

/// Records in their order; an error is the last.
pub(super) type Chunk = anyhow::Result<Vec<Input>>;

/// Opens the input, and says how long it is if that is known.
pub(super) fn open(args: &PubArgs) -> anyhow::Result<(mpsc::Receiver<Chunk>, Option<u64>)> {
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    let keys = Keys::new(args)?;
    if let Some(message) = &args.message {
        let value = message.clone().into_bytes();
        let input = Input { key: keys.of(&value, 1)?, value };
        sender.try_send(Ok(vec![input])).context("the channel was just made")?;
        return Ok((receiver, None));
    }
    let file = args.file.as_deref().filter(|file| file.as_os_str() != "-");
    let (input, bytes): (Box<dyn Read + Send>, _) = match file {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
            let found = file.metadata()?;
            anyhow::ensure!(!found.is_dir(), "cannot read {}: it is a directory", path.display());
            (Box::new(file), found.is_file().then_some(found.len()))
        }
        None => {
            if std::io::stdin().is_terminal() {
                let what = if args.lines { "messages, a line each," } else { "the message" };
                output::note(format_args!("type {what} and end with Ctrl-D"));
            }
            (Box::new(std::io::stdin()), None)
        }
    };
    let by_lines = args.lines;
    std::thread::spawn(move || {
        let mut reader = BufReader::with_capacity(256 << 10, input);
        let sent = if by_lines { lines(&mut reader, &keys, &sender) } else { whole(reader, &keys, &sender) };
        if let Err(error) = sent {
            // If nobody listens any more, nobody wants to know.
            let _ = sender.blocking_send(Err(error));
        }
    });
    Ok((receiver, bytes))
}

fn whole(reader: impl Read, keys: &Keys, sender: &mpsc::Sender<Chunk>) -> anyhow::Result<()> {
    let mut value = Vec::new();
    reader.take(RECORD_BYTES_MAX + 1).read_to_end(&mut value)?;
    if value.len() as u64 > RECORD_BYTES_MAX {
        bail!("the message exceeds {RECORD_BYTES_MAX} bytes; --lines publishes each line as one");
    }
    let key = keys.of(&value, 1)?;
    let _ = sender.blocking_send(Ok(vec![Input { key, value }]));
    Ok(())
}

fn lines(reader: &mut BufReader<impl Read>, keys: &Keys, sender: &mpsc::Sender<Chunk>) -> anyhow::Result<()> {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    for number in 1u64.. {
        let mut value = Vec::new();
        reader.by_ref().take(RECORD_BYTES_MAX + 2).read_until(b'\n', &mut value)?;
        if value.is_empty() {
            break;
        }
        if value.last() == Some(&b'\n') {
            value.pop();
        }
        let read = if value.len() as u64 > RECORD_BYTES_MAX {
            Err(anyhow::anyhow!("line {number} exceeds {RECORD_BYTES_MAX} bytes"))
        } else {
            keys.of(&value, number)
        };
        let key = match read {
            Ok(key) => key,
            // What comes before the bad line is published.
            Err(error) => {
                let _ = sender.blocking_send(Ok(chunk));
                return Err(error);
            }
        };
        bytes += value.len();
        chunk.push(Input { key, value });
        // What is behind a pipe may take its time: whole lines do not wait for the next.
        let has_next = reader.buffer().contains(&b'\n');
        if chunk.len() == CHUNK_RECORDS || bytes >= CHUNK_BYTES || !has_next {
            if sender.blocking_send(Ok(std::mem::take(&mut chunk))).is_err() {
                return Ok(());
            }
            bytes = 0;
        }
    }
    if !chunk.is_empty() {
        let _ = sender.blocking_send(Ok(chunk));
    }
    Ok(())
}

/// Where keys come from.
enum Keys {
    None,
    Fixed(String),
    /// Member names and indices from the root of a JSON value.
    Json(Vec<String>),
}

impl Keys {
    fn new(args: &PubArgs) -> anyhow::Result<Self> {
        match (&args.key, &args.key_json) {
            (Some(key), _) => Ok(Self::Fixed(key.clone())),
            (None, Some(path)) => {
                let names = path.strip_prefix('.').context("--key-json starts with a dot: .user.id")?;
                let names: Vec<_> = names.split('.').map(str::to_owned).collect();
                anyhow::ensure!(names.iter().all(|name| !name.is_empty()), "--key-json is like .user.id");
                Ok(Self::Json(names))
            }
            (None, None) => Ok(Self::None),
        }
    }

    fn of(&self, value: &[u8], line: u64) -> anyhow::Result<Option<Vec<u8>>> {
        let names = match self {
            Self::None => return Ok(None),
            Self::Fixed(key) => return Ok(Some(key.clone().into_bytes())),
            Self::Json(names) => names,
        };
        let path = names.join(".");
        let whole: Value =
            serde_json::from_slice(value).with_context(|| format!("line {line} is not JSON"))?;
        let found = names.iter().try_fold(&whole, |at, name| match at {
            Value::Array(items) => items.get(name.parse::<usize>().ok()?),
            other => other.get(name),
        });
        match found {
            Some(Value::String(text)) => Ok(Some(text.clone().into_bytes())),
            Some(Value::Null) | None => bail!("line {line} has no .{path}"),
            Some(Value::Object(_) | Value::Array(_)) => bail!("line {line}: .{path} is not a text or number"),
            Some(other) => Ok(Some(other.to_string().into_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], keys: &Keys) -> (Vec<Input>, Option<String>) {
        let (sender, mut receiver) = mpsc::channel(1_000);
        let failed = lines(&mut BufReader::new(text), keys, &sender).err().map(|error| error.to_string());
        let mut found = Vec::new();
        while let Ok(chunk) = receiver.try_recv() {
            found.extend(chunk.unwrap());
        }
        (found, failed)
    }

    #[test]
    fn every_line_is_a_message_empty_ones_and_the_last_without_an_end_too() {
        let (found, failed) = read(b"a\n\nb\r\nc", &Keys::None);
        let values: Vec<_> = found.iter().map(|input| &input.value[..]).collect();
        assert_eq!(values, [b"a" as &[u8], b"", b"b\r", b"c"]);
        assert_eq!(failed, None);
        assert_eq!(read(b"", &Keys::None).0, []);
    }

    #[test]
    fn keys_come_from_json_and_a_line_without_one_ends_the_run_by_its_number() {
        let keys = Keys::Json(vec!["u".into(), "id".into()]);
        let (found, failed) = read(b"{\"u\":{\"id\":7}}\n{\"u\":{\"id\":\"x\"}}\n{\"u\":{}}\n{}", &keys);
        let of: Vec<_> = found.iter().map(|input| input.key.clone().unwrap()).collect();
        assert_eq!(of, [b"7".to_vec(), b"x".to_vec()]);
        assert_eq!(failed.as_deref(), Some("line 3 has no .u.id"));
    }

    #[test]
    fn a_line_that_is_too_long_is_named() {
        let mut text = b"ok\n".to_vec();
        text.resize(text.len() + usize::try_from(RECORD_BYTES_MAX).unwrap() + 1, b'x');
        let (found, failed) = read(&text, &Keys::None);
        assert_eq!(found.len(), 1);
        assert!(failed.unwrap().starts_with("line 2 exceeds"));
    }
}
