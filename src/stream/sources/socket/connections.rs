//! The connections of a receiver: who they are, what comes on them, and their end.

use super::address::{AcceptedStream, ConnectionAcceptor, Duplex};
use super::receiving::{FedSample, Receiving};
use super::wire::{
    FeederId, FrameKind, HEADER, HelloBody, SampleBody, frame, parse_header, parse_numbers, read_body,
    skip_body,
};
use crate::stream::record::Record;
use crate::stream::source::Arrival;
use std::future::Future;
use std::io::{Error as IoError, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

/// How long a connection may take until it is known who is on it.
const GREETING: Duration = Duration::from_secs(10);
/// How often each side says that it lives.
pub(super) const ALIVE_EVERY: Duration = Duration::from_secs(10);
/// After how long without a byte the other side is taken for dead.
pub(super) const SILENCE: Duration = Duration::from_secs(60);
/// The bytes that are written at a time.
const PIECE: usize = 256 << 10;

/// Accepts connections for ever.
pub(super) async fn listen(acceptor: ConnectionAcceptor, receiving: Arc<Receiving>, most: usize) {
    let places = Arc::new(Semaphore::new(most));
    loop {
        match acceptor.accept().await {
            Ok(stream) => {
                // One too many is closed, and comes again.
                if let Ok(place) = places.clone().try_acquire_owned() {
                    let receiving = receiving.clone();
                    tokio::spawn(async move {
                        serve(stream, &receiving).await;
                        drop(place);
                    });
                }
            }
            // Without descriptors nobody is accepted; the next moment may have some.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// What a future gives in time.
pub(super) async fn within<T>(
    limit: Duration,
    future: impl Future<Output = std::io::Result<T>>,
) -> std::io::Result<T> {
    timeout(limit, future).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// An error for what the other side says that makes no sense.
pub(super) fn nonsense(what: String) -> IoError {
    IoError::new(ErrorKind::InvalidData, what)
}

/// Reads the header of a frame.
pub(super) async fn read_header(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<(FrameKind, usize)> {
    let mut header = [0; HEADER];
    from.read_exact(&mut header).await?;
    parse_header(header).map_err(nonsense)
}

/// Reads a frame that is no sample.
pub(super) async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<(FrameKind, Vec<u8>)> {
    let (kind, length) = read_header(from).await?;
    if kind == FrameKind::Sample {
        return Err(nonsense("a sample comes where none may".to_owned()));
    }
    let mut body = Vec::new();
    read_body(from, length, &mut body).await?;
    Ok((kind, body))
}

/// Writes a frame, each piece of which must go within some time.
pub(super) async fn write_frame(to: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> std::io::Result<()> {
    for piece in frame.chunks(PIECE) {
        within(SILENCE, to.write_all(piece)).await?;
    }
    within(SILENCE, to.flush()).await
}

async fn serve(stream: AcceptedStream, receiving: &Arc<Receiving>) {
    let Ok((mut stream, id)) = within(GREETING, greet(stream, receiving)).await else { return };
    let (sender, frames) = unbounded_channel();
    let connection = receiving.connected(id, sender);
    let (mut reading, writing) = tokio::io::split(&mut stream);
    // Both ends live in this task: whichever comes to its end takes the other along.
    let mut goodbye = false;
    let mut refusal = None;
    {
        let read = async {
            match receive_frames(&mut reading, id, connection, receiving).await {
                Ok(()) => goodbye = true,
                Err(error) if error.kind() == ErrorKind::InvalidData => refusal = Some(error.to_string()),
                Err(_) => {}
            }
        };
        first_of(read, send_frames(writing, frames)).await;
    }
    receiving.disconnected(id, connection, goodbye);
    if let Some(refusal) = refusal {
        receiving.tell_refused(&refusal);
        let _ = within(GREETING, refuse(&mut stream, &refusal)).await;
    }
}

/// Runs two futures until one of them has ended.
pub(super) async fn first_of(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|context| {
        let ended = one.as_mut().poll(context).is_ready() || other.as_mut().poll(context).is_ready();
        if ended { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

async fn refuse(stream: &mut (impl AsyncWrite + Unpin), why: &str) -> std::io::Result<()> {
    write_frame(stream, &frame(FrameKind::Refused, why.as_bytes())).await?;
    stream.shutdown().await
}

/// Finds out who is on a connection, and lets in who may come.
async fn greet(
    stream: AcceptedStream,
    receiving: &Receiving,
) -> std::io::Result<(Box<dyn Duplex>, FeederId)> {
    let mut stream = stream.begin().await?;
    let mut refusal = "a feeder says hello first".to_owned();
    match read_header(&mut stream).await {
        Ok((FrameKind::Hello, length)) => {
            let mut body = Vec::new();
            read_body(&mut stream, length, &mut body).await?;
            match HelloBody::parse(&body) {
                Ok(hello) if receiving.token.as_ref().is_none_or(|token| token.is(hello.token)) => {
                    return Ok((stream, hello.feeder));
                }
                Ok(_) => refusal = "the token is wrong: give the one that the receiver has".to_owned(),
                Err(what) => refusal = what,
            }
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::InvalidData => refusal = error.to_string(),
        Err(error) => return Err(error),
    }
    receiving.tell_refused(&refusal);
    refuse(&mut stream, &refusal).await?;
    Err(ErrorKind::PermissionDenied.into())
}

/// Sends what there is to say, and says that this side lives while there is nothing. Ends when the feeder is on another
/// connection, or takes nothing any more. If the feeder has closed the connection, the reading end decides: what the
/// feeder sent before that, such as its goodbye, may not be read yet.
async fn send_frames(mut to: impl AsyncWrite + Unpin, mut frames: UnboundedReceiver<Vec<u8>>) {
    loop {
        let next = match timeout(ALIVE_EVERY, frames.recv()).await {
            Ok(Some(next)) => next,
            // The feeder is on another connection by now.
            Ok(None) => return,
            Err(_) => frame(FrameKind::Alive, &[]),
        };
        match write_frame(&mut to, &next).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::TimedOut => return,
            Err(_) => return std::future::pending().await,
        }
    }
}

/// Takes what comes until a goodbye.
async fn receive_frames(
    from: &mut (impl AsyncRead + Unpin),
    id: FeederId,
    connection: u64,
    receiving: &Receiving,
) -> std::io::Result<()> {
    loop {
        let (kind, length) = within(SILENCE, read_header(from)).await?;
        match kind {
            FrameKind::Sample => {
                let Some(sample) = receive_sample(from, id, length, receiving).await? else {
                    return Err(nonsense(format!(
                        "more is under way than fits the window, {length} bytes too many"
                    )));
                };
                if !receiving.push(connection, sample) {
                    return Err(ErrorKind::ConnectionAborted.into());
                }
            }
            FrameKind::Confirmed => {
                let mut body = Vec::new();
                within(SILENCE, read_body(from, length, &mut body)).await?;
                receiving.confirmed(&id, &parse_numbers(&body).map_err(nonsense)?);
            }
            FrameKind::Alive if length == 0 => {}
            FrameKind::Goodbye if length == 0 => return Ok(()),
            _ => return Err(nonsense(format!("a feeder does not say {kind:?} here"))),
        }
    }
}

/// Reads a sample; `None` if it would be more than the feeder may have under way.
async fn receive_sample(
    from: &mut (impl AsyncRead + Unpin),
    feeder: FeederId,
    length: usize,
    receiving: &Receiving,
) -> std::io::Result<Option<FedSample>> {
    let mut body = Vec::new();
    // What is around the members' bytes is allowed besides.
    let most = receiving.max_bytes.saturating_add(SampleBody::BEGINNING + (80 << 10));
    if length > most {
        let beginning = length.min(SampleBody::BEGINNING);
        within(SILENCE, read_body(from, beginning, &mut body)).await?;
        let (number, key) = SampleBody::parse_beginning(&body).map_err(nonsense)?;
        let (key, wrong) = (key.to_owned(), too_long(length, receiving));
        let mut left = length - beginning;
        while left > 0 {
            let piece = left.min(PIECE);
            within(SILENCE, skip_body(from, piece)).await?;
            left -= piece;
        }
        return Ok(Some(FedSample {
            feeder,
            number,
            bytes: 0,
            arrival: Arrival { key, record: Err(wrong), gap: 0 },
        }));
    }
    if !receiving.has_room(&feeder, length) {
        return Ok(None);
    }
    while body.len() < length {
        let piece = (length - body.len()).min(PIECE.max(body.len()));
        within(SILENCE, read_body(from, piece, &mut body)).await?;
    }
    let sample = SampleBody::parse(&body).map_err(nonsense)?;
    let key = sample.key.to_owned();
    let bytes: usize = sample.members.iter().map(|(_, bytes)| bytes.len()).sum();
    let record = if bytes > receiving.max_bytes {
        Err(too_long(bytes, receiving))
    } else {
        Record::new(&receiving.name, &key, &sample.members)
    };
    let number = sample.number;
    Ok(Some(FedSample { feeder, number, bytes: length, arrival: Arrival { key, record, gap: 0 } }))
}

fn too_long(bytes: usize, receiving: &Receiving) -> String {
    format!("it has {bytes} bytes, max_bytes is {}", receiving.max_bytes)
}
