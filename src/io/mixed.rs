//! A reader of datasets of which some lie on file systems and some on servers: each has the reader that suits it.

use super::files::Files;
use super::group::{GroupBell, GroupedReader, ReaderGroup};
use super::own_thread::OwnThread;
use super::ranged::RangedReader;
use super::{Completion, ReadRequest, ReadStats, Reader, Waker};
use crate::error::Result;
use std::sync::Arc;

/// The places of the readers in their group.
const LOCAL: usize = 0;
const REMOTE: usize = 1;

/// Two readers as one.
pub(super) struct MixedReader {
    files: Arc<dyn Files>,
    group: ReaderGroup,
    arrived: Vec<(usize, Completion)>,
}

impl MixedReader {
    /// A reader that leaves files with a path to `local` and has up to `depth` requests for the others.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`] where the system refuses a thread or what it needs.
    pub(super) fn new(files: Arc<dyn Files>, local: Box<dyn Reader>, depth: usize) -> Result<Self> {
        let bell = Arc::<GroupBell>::default();
        let on_servers = files.clone();
        let open =
            move || RangedReader::new(on_servers, depth).map(|reader| Box::new(reader) as Box<dyn Reader>);
        let remote = OwnThread::new("foreload-http", open, bell.waker())?;
        let readers = vec![GroupedReader::Waiting(local), GroupedReader::Listening(Box::new(remote))];
        Ok(Self { files, group: ReaderGroup::new(readers, bell), arrived: Vec::new() })
    }
}

impl Reader for MixedReader {
    /// What is submitted next may be for either reader.
    fn room(&self) -> usize {
        self.group.get(LOCAL).room().min(self.group.get(REMOTE).room())
    }

    fn in_flight(&self) -> usize {
        self.group.in_flight()
    }

    fn submit(&mut self, request: ReadRequest) {
        let place = if self.files.remote(request.extent.file).is_some() { REMOTE } else { LOCAL };
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
        self.group.get(LOCAL).stats() + self.group.get(REMOTE).stats()
    }

    fn describe(&self) -> String {
        format!("{}; {}", self.group.get(LOCAL).describe(), self.group.get(REMOTE).describe())
    }
}
