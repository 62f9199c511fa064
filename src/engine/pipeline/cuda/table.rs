//! The table that kernels read for a chunk: an entry for each view of each image, followed by the views' programs. A
//! program encodes the operations on an image's pixels as words; not all views have one. The table is written in
//! page-locked memory and copied in one piece.

use super::GpuStage;
use super::placed::PlacedSample;
use super::staging::LaneStaging;
use base::error::Result;
use pixels::augment::DrawnView;
use pixels::augment::cuda::{ImageParams, MixGroupParams, MixLauncher, Programs, ProgramsAt, ViewLauncher};
use pixels::gpu::{DeviceBuffer, InFlight};

pub(super) struct LaneTable {
    device: DeviceBuffer,
    programs: Programs,
    view_bytes: usize,
}

/// A view of one image field, with the launchers of the kernels that make it. One launch makes this view for all
/// samples of a chunk.
pub(super) struct ImageView {
    pub(super) image: usize,
    pub(super) number: usize,
    pub(super) launcher: ViewLauncher,
    /// Launches the mixing of the view's images (MixUp, CutMix); `None` if nothing is mixed.
    pub(super) mix: Option<MixLauncher>,
}

impl ImageView {
    fn drawn<'a>(&self, sample: &'a PlacedSample) -> Option<&'a DrawnView> {
        sample.work.images.get(self.image).drawn().map(|drawn| &drawn.views()[self.number])
    }
}

impl LaneTable {
    /// Makes a table in the memory `device`. If a chunk needs a larger table, other memory replaces `device`.
    pub(super) fn new(device: DeviceBuffer) -> Self {
        Self { device, programs: Programs::default(), view_bytes: 0 }
    }

    /// Queues the copy of the table for the `placed` samples, whose planes are in the arena at address `arena`.
    pub(super) fn write(
        &mut self,
        stage: &GpuStage,
        staging: &mut LaneStaging,
        flight: &mut InFlight,
        views: &[ImageView],
        placed: &[PlacedSample],
        arena: u64,
    ) -> Result<()> {
        self.programs.clear();
        for view @ ImageView { launcher, .. } in views {
            self.programs.begin_view(launcher.max_sets());
            for sample in placed {
                self.programs.add(view.drawn(sample))?;
            }
        }
        self.view_bytes = placed.len() * ImageParams::BYTES;
        let entries_bytes = views.len() * self.view_bytes;
        let bytes = entries_bytes + self.programs.bytes();
        let mut slot = staging.table(bytes, flight)?;
        let (entries, programs) = slot.bytes_mut()[..bytes].split_at_mut(entries_bytes);
        let of_views = views.iter().flat_map(|view| placed.iter().map(move |sample| (view, sample)));
        for (entry, (view, sample)) in entries.chunks_exact_mut(ImageParams::BYTES).zip(of_views) {
            let params = match (sample.at.get(view.image), view.drawn(sample)) {
                (Some((offset, layout)), Some(drawn)) => {
                    ImageParams::new(layout, arena + offset, drawn.planes_view(), view.launcher.pass_output())
                }
                _ => ImageParams::blank(),
            };
            entry.copy_from_slice(params.at(sample.work.place.ticket.index()).as_bytes());
        }
        self.programs.write(programs);
        let from = staging.tables.pin(slot)?.part(0..bytes)?;
        if self.device.bytes() < bytes {
            // The old table is freed in the stream's order. Long programs are rare, so a little extra space is enough.
            self.device = stage.memory.allocate(flight.stream(), bytes + bytes / 4)?;
        }
        flight.copy_to_device(self.device.range(0, bytes)?, &from)
    }

    /// Queues the copy of a table of mixing groups to the device, and returns the table's address there. The copy
    /// overwrites the table of the images, which all earlier work on the stream has read by then.
    pub(super) fn write_mix_groups(
        &mut self,
        staging: &mut LaneStaging,
        flight: &mut InFlight,
        mix_groups: &[MixGroupParams],
    ) -> Result<u64> {
        let bytes = mix_groups.len() * MixGroupParams::BYTES;
        let mut slot = staging.table(bytes, flight)?;
        for (entry, group) in slot.bytes_mut().chunks_exact_mut(MixGroupParams::BYTES).zip(mix_groups) {
            entry.copy_from_slice(group.as_bytes());
        }
        let from = staging.tables.pin(slot)?.part(0..bytes)?;
        flight.copy_to_device(self.device.range(0, bytes)?, &from)?;
        Ok(self.device.ptr())
    }

    pub(super) fn entries(&self, view: usize) -> u64 {
        self.device.ptr() + (view * self.view_bytes) as u64
    }

    /// Returns the programs of the view with the index `view`; `None` if its images have no programs. `views` is the
    /// number of all views.
    pub(super) fn programs(&self, view: usize, views: usize) -> Option<ProgramsAt> {
        self.programs.of_view(view, self.entries(views))
    }
}
