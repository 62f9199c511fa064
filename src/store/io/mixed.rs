//! Combines two readers into one. Each request goes to the reader that suits it. Used for datasets that are partly on
//! file systems and partly on servers, and for samples that are partly in compressed blocks.

use super::files::Files;
use super::group::{GroupWaker, GroupedReader, ReaderGroup};
use super::own_thread::OwnThread;
use super::ranged::RangedReader;
use super::{Completion, ReadRequest, ReadStats, Reader, Waker};
use base::error::Result;
use std::sync::Arc;

const FIRST: usize = 0;
const SECOND: usize = 1;

/// Returns whether a request is for the second reader. May change the request before the reader gets it.
type IsForSecond = fn(&dyn Files, &mut ReadRequest) -> bool;

pub(super) struct MixedReader {
    files: Arc<dyn Files>,
    is_for_second: IsForSecond,
    group: ReaderGroup,
    arrived: Vec<(usize, Completion)>,
}

impl MixedReader {
    /// Makes a reader that sends a request to the second reader if `is_for_second` returns true, and to `first`
    /// otherwise. `open` makes the second reader, which runs on a thread named `thread`.
    ///
    /// # Errors
    /// [`base::error::Error::Unavailable`] if the system refuses a thread, and the errors of `open`.
    pub(super) fn new(
        files: Arc<dyn Files>,
        first: Box<dyn Reader>,
        thread: &str,
        open: impl FnOnce() -> Result<Box<dyn Reader>> + Send + 'static,
        is_for_second: IsForSecond,
    ) -> Result<Self> {
        let group_waker = Arc::<GroupWaker>::default();
        let second = OwnThread::new(thread, open, group_waker.waker())?;
        let readers = vec![GroupedReader::Waiting(first), GroupedReader::Listening(Box::new(second))];
        Ok(Self { files, is_for_second, group: ReaderGroup::new(readers, group_waker), arrived: Vec::new() })
    }

    /// Makes a reader that passes requests for files with a path to `local`, and sends up to `depth` concurrent
    /// requests for files on servers.
    ///
    /// # Errors
    /// [`base::error::Error::Unavailable`] if the system refuses a thread, or a resource that its runtime needs.
    pub(super) fn of_servers(files: Arc<dyn Files>, local: Box<dyn Reader>, depth: usize) -> Result<Self> {
        let on_servers = files.clone();
        let open =
            move || RangedReader::new(on_servers, depth).map(|reader| Box::new(reader) as Box<dyn Reader>);
        let is_remote: IsForSecond = |files, request| files.remote(request.extent.file).is_some();
        Self::new(files, local, "foreload-http", open, is_remote)
    }
}

impl Reader for MixedReader {
    /// Returns the smaller capacity of the two readers, because the next request may be for either.
    fn room(&self) -> usize {
        self.group.get(FIRST).room().min(self.group.get(SECOND).room())
    }

    fn in_flight(&self) -> usize {
        self.group.in_flight()
    }

    fn submit(&mut self, mut request: ReadRequest) {
        let place = if (self.is_for_second)(&*self.files, &mut request) { SECOND } else { FIRST };
        self.group.submit(place, request);
    }

    fn wait(&mut self, out: &mut Vec<Completion>) -> Result<()> {
        self.group.wait(false, &mut self.arrived)?;
        out.extend(self.arrived.drain(..).map(|(_, completion)| completion));
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.group.waker()
    }

    fn stats(&self) -> ReadStats {
        self.group.get(FIRST).stats() + self.group.get(SECOND).stats()
    }

    fn describe(&self) -> String {
        format!("{}; {}", self.group.get(FIRST).describe(), self.group.get(SECOND).describe())
    }
}
