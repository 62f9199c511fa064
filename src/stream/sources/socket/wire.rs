//! What a stream's receiver and a feeder say to one another.
//!
//! ```text
//! frame              kind u8 · bytes u32 · body
//! 1 hello          → magic · version u16 · feeder 16 bytes · token, up to the end
//! 2 welcome        ← version u16 · keeps u8 · window u64 · received u64
//! 3 refused        ← why, as text
//! 4 sample         → number u64 · bytes of the key u16 · key · members u16 ·
//!                    of each: bytes of its name u8 · bytes u32 · its name · its bytes
//! 5 received       ← number u64: this sample and all before it
//! 6 acknowledged   ← numbers u64, up to the end
//! 7 confirmed      → numbers u64, up to the end
//! 8 goodbye        →
//! 9 alive          both
//! ```
//!
//! All numbers are little-endian. `→` is what the feeder says. It numbers its samples one after another, from 1, and
//! says who it is by bytes that it draws when it is made, so that it is known again on another connection.

use tokio::io::{AsyncRead, AsyncReadExt};

/// The first bytes of a feeder.
const MAGIC: &[u8; 8] = b"FLSTREAM";
/// What is spoken.
const VERSION: u16 = 1;
/// The bytes of a frame before its body.
pub(super) const HEADER: usize = 5;
/// The most bytes of the body of a frame that is no sample.
pub(super) const CONTROL: usize = 64 << 10;
/// The most bytes of a hello: magic, version, feeder, and the longest token.
const HELLO: usize = 2 << 10;
/// The most bytes of a sample's key.
const LONGEST_KEY: usize = 1024;
/// The most numbers of a frame that lists them.
pub(super) const MOST_NUMBERS: usize = CONTROL / 8;
/// The bytes that are asked for at a time: memory is taken as bytes come, whatever a frame says that it has.
const PIECE: usize = 256 << 10;

/// Who feeds: drawn anew for each feeder.
pub(super) type FeederId = [u8; 16];

/// The kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameKind {
    Hello = 1,
    Welcome = 2,
    Refused = 3,
    Sample = 4,
    Received = 5,
    Acknowledged = 6,
    Confirmed = 7,
    Goodbye = 8,
    Alive = 9,
}

impl FrameKind {
    fn of(byte: u8) -> Option<Self> {
        use FrameKind as K;
        let all = [
            K::Hello,
            K::Welcome,
            K::Refused,
            K::Sample,
            K::Received,
            K::Acknowledged,
            K::Confirmed,
            K::Goodbye,
            K::Alive,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The frame of this kind with this body.
pub(super) fn frame(kind: FrameKind, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER + body.len());
    frame.push(kind as u8);
    frame.extend((body.len() as u32).to_le_bytes());
    frame.extend(body);
    frame
}

/// The kind of a frame and the bytes of its body, by its first bytes.
pub(super) fn parse_header(header: [u8; HEADER]) -> Result<(FrameKind, usize), String> {
    let [kind, length @ ..] = header;
    let kind = FrameKind::of(kind).ok_or_else(|| format!("a frame is of kind {kind}, which there is not"))?;
    let length = u32::from_le_bytes(length) as usize;
    let most = match kind {
        FrameKind::Hello => HELLO,
        FrameKind::Sample => usize::MAX,
        _ => CONTROL,
    };
    if length > most {
        return Err(format!("a frame has {length} bytes, may have {most}"));
    }
    Ok((kind, length))
}

/// Reads the body of a frame.
pub(super) async fn read_body(
    from: &mut (impl AsyncRead + Unpin),
    length: usize,
    into: &mut Vec<u8>,
) -> std::io::Result<()> {
    let mut left = length;
    while left > 0 {
        into.reserve(left.min(PIECE.max(into.len())));
        let read = (&mut *from).take(left.min(into.capacity() - into.len()) as u64).read_buf(into).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        left -= read;
    }
    Ok(())
}

/// Passes over what follows of a body.
pub(super) async fn skip_body(from: &mut (impl AsyncRead + Unpin), mut length: usize) -> std::io::Result<()> {
    let mut passed = vec![0; PIECE.min(length)];
    while length > 0 {
        let most = passed.len().min(length);
        let read = from.read(&mut passed[..most]).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        length -= read;
    }
    Ok(())
}

/// A body that is taken apart from its beginning.
struct BodyReader<'a>(&'a [u8]);

impl<'a> BodyReader<'a> {
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or("a frame ends too early")?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(*self.bytes(N)?.first_chunk().expect("as many as were asked for"))
    }

    fn u16(&mut self) -> Result<u16, String> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self, length: usize) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes(length)?).map_err(|_| "a name is no text in UTF-8".to_owned())
    }
}

fn version(reader: &mut BodyReader<'_>) -> Result<(), String> {
    match reader.u16()? {
        VERSION => Ok(()),
        other => Err(format!(
            "version {other} is spoken there, {VERSION} here: take the same Foreload on both sides"
        )),
    }
}

/// What a feeder says first.
pub(super) struct HelloBody<'a> {
    pub feeder: FeederId,
    pub token: &'a [u8],
}

impl<'a> HelloBody<'a> {
    pub(super) fn frame(&self) -> Vec<u8> {
        let version = VERSION.to_le_bytes();
        frame(FrameKind::Hello, &[MAGIC, &version[..], &self.feeder, self.token].concat())
    }

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, String> {
        let mut reader = BodyReader(body);
        if reader.array()? != *MAGIC {
            return Err("that is no feeder".to_owned());
        }
        version(&mut reader)?;
        Ok(Self { feeder: reader.array()?, token: reader.0 })
    }
}

/// How a receiver answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WelcomeBody {
    /// Whether a sample is to be kept until it is acknowledged, and not only until it is received.
    pub keeps: bool,
    /// The most bytes of samples that may be under way.
    pub window: u64,
    /// The last sample of this feeder that has arrived, which is not to be sent again.
    pub received: u64,
}

impl WelcomeBody {
    pub(super) fn frame(&self) -> Vec<u8> {
        let version = VERSION.to_le_bytes();
        let numbers = [self.window.to_le_bytes(), self.received.to_le_bytes()].concat();
        frame(FrameKind::Welcome, &[&version[..], &[u8::from(self.keeps)], &numbers].concat())
    }

    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let mut reader = BodyReader(body);
        version(&mut reader)?;
        let [keeps] = reader.array()?;
        Ok(Self { keeps: keeps == 1, window: reader.u64()?, received: reader.u64()? })
    }
}

/// A sample on its way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SampleBody<'a> {
    pub number: u64,
    pub key: &'a str,
    pub members: Vec<(&'a str, &'a [u8])>,
}

impl<'a> SampleBody<'a> {
    /// The frame; or, in words, why it cannot be sent.
    pub(super) fn frame(&self) -> Result<Vec<u8>, String> {
        if self.key.is_empty() || self.key.len() > LONGEST_KEY {
            return Err(format!("its key has {} bytes, must have 1 to {LONGEST_KEY}", self.key.len()));
        }
        let members: usize = self.members.iter().map(|(name, bytes)| 5 + name.len() + bytes.len()).sum();
        let length = 12 + self.key.len() + members;
        let Ok(long) = u32::try_from(length) else {
            return Err(format!("it has {length} bytes, must have less than 4 GiB"));
        };
        let mut frame = Vec::with_capacity(HEADER + length);
        frame.push(FrameKind::Sample as u8);
        frame.extend(long.to_le_bytes());
        frame.extend(self.number.to_le_bytes());
        frame.extend((self.key.len() as u16).to_le_bytes());
        frame.extend(self.key.as_bytes());
        let count = u16::try_from(self.members.len());
        frame.extend(count.map_err(|_| "it has too many members".to_owned())?.to_le_bytes());
        for (name, bytes) in &self.members {
            let name_length = u8::try_from(name.len());
            frame.push(name_length.map_err(|_| format!("a member's name has {} bytes", name.len()))?);
            frame.extend((bytes.len() as u32).to_le_bytes());
            frame.extend(name.as_bytes());
            frame.extend(*bytes);
        }
        Ok(frame)
    }

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, String> {
        let mut reader = BodyReader(body);
        let (number, key) = Self::beginning(&mut reader)?;
        let count = reader.u16()?;
        // A name and its lengths take five bytes at least, so that no count takes memory of its own.
        let mut members = Vec::with_capacity(usize::from(count).min(reader.0.len() / 5));
        for _ in 0..count {
            let [name] = reader.array()?;
            let bytes = u32::from_le_bytes(reader.array()?) as usize;
            members.push((reader.text(name.into())?, reader.bytes(bytes)?));
        }
        if !reader.0.is_empty() {
            return Err("a frame has bytes behind its sample".to_owned());
        }
        Ok(Self { number, key, members })
    }

    fn beginning(reader: &mut BodyReader<'a>) -> Result<(u64, &'a str), String> {
        let number = reader.u64()?;
        let length = reader.u16()?;
        Ok((number, reader.text(length.into())?))
    }

    /// The number and the key of a sample of which no more than the beginning is there.
    pub(super) fn parse_beginning(body: &'a [u8]) -> Result<(u64, &'a str), String> {
        Self::beginning(&mut BodyReader(body))
    }

    /// How many bytes of a body [`Self::parse_beginning`] may need.
    pub(super) const BEGINNING: usize = 10 + LONGEST_KEY;
}

/// The frame that lists these numbers, of which there are at most [`MOST_NUMBERS`].
pub(super) fn frame_of_numbers(kind: FrameKind, numbers: &[u64]) -> Vec<u8> {
    let body: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    frame(kind, &body)
}

/// The numbers that a body lists.
pub(super) fn parse_numbers(body: &[u8]) -> Result<Vec<u64>, String> {
    let (numbers, rest) = body.as_chunks();
    if rest.is_empty() {
        Ok(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
    } else {
        Err("a list of numbers is cut off".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_that_is_cut_off() {
        let members: [(&str, &[u8]); 2] = [("jpg", b"pixels"), ("cls", b"3")];
        let sample = SampleBody { number: 7, key: "a/1", members: members.to_vec() };
        let framed = sample.frame().unwrap();
        let (kind, length) = parse_header(*framed.first_chunk().unwrap()).unwrap();
        assert_eq!((kind, length), (FrameKind::Sample, framed.len() - HEADER));
        let body = &framed[HEADER..];
        assert_eq!(SampleBody::parse(body).unwrap(), sample);
        assert_eq!(SampleBody::parse_beginning(&body[..13]).unwrap(), (7, "a/1"));
        (0..body.len()).for_each(|cut| assert!(SampleBody::parse(&body[..cut]).is_err()));
        assert!(SampleBody::parse(&[body, b"x"].concat()).is_err());

        let hello = HelloBody { feeder: [5; 16], token: b"secret" }.frame();
        let parsed = HelloBody::parse(&hello[HEADER..]).unwrap();
        assert_eq!((parsed.feeder, parsed.token), ([5; 16], &b"secret"[..]));
        assert!(HelloBody::parse(b"GET / HTTP/1.1\r\n\r\n").is_err());
        let mut other = hello.clone();
        other[HEADER + 8] = 9;
        assert!(HelloBody::parse(&other[HEADER..]).err().unwrap().contains("version 9"));

        let welcome = WelcomeBody { keeps: true, window: 1 << 40, received: 3 };
        assert_eq!(WelcomeBody::parse(&welcome.frame()[HEADER..]).unwrap(), welcome);
        let numbers = frame_of_numbers(FrameKind::Confirmed, &[1, u64::MAX]);
        assert_eq!(parse_numbers(&numbers[HEADER..]).unwrap(), [1, u64::MAX]);
        assert!(parse_numbers(&numbers[HEADER..numbers.len() - 1]).is_err());
    }

    #[test]
    fn frames_that_are_too_long_or_unknown_are_refused_by_their_header() {
        for (header, expected) in [
            ([0, 0, 0, 0, 0], "of kind 0"),
            ([77, 0, 0, 0, 0], "of kind 77"),
            ([1, 1, 8, 0, 0], "2049 bytes, may have 2048"),
            ([7, 0, 0, 0, 255], "may have 65536"),
        ] {
            let error = parse_header(header).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let long = SampleBody { number: 1, key: &"k".repeat(2000), members: vec![] };
        assert!(long.frame().unwrap_err().contains("2000 bytes"));
    }

    #[test]
    fn damaged_samples_never_reach_beyond_their_frame() {
        let members: [(&str, &[u8]); 2] = [("jpg", b"abcdef"), ("cls", b"1")];
        let framed = SampleBody { number: 1, key: "key", members: members.to_vec() }.frame().unwrap();
        for at in HEADER..framed.len() {
            for value in [0, 1, 127, 128, 255] {
                let mut body = framed[HEADER..].to_vec();
                body[at - HEADER] = value;
                if let Ok(sample) = SampleBody::parse(&body) {
                    assert!(sample.members.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() <= body.len());
                }
            }
        }
    }
}
