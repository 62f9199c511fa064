//! What the tests and the benchmarks look into. Only they turn its feature on, and none of it is promised to anybody.
//!
//! An item that neither stands here nor in `lib.rs` is `pub(crate)`; the compiler says so.

#![allow(missing_docs)]

pub mod augment {
    pub use crate::augment::{
        Augmenter, Axis, DType, Fidelity, Filter, ImageTransforms, MemoryFormat, Output, Padding, Recipe,
        Renderer, Transform, Transforms, View,
    };
    pub mod cuda {
        pub use crate::augment::cuda::{
            ImageParams, Kernels, Launch, Launcher, OutputParams, POISON, Untouched,
        };
    }
}
pub mod batch {
    pub use crate::batch::{Batch, Place, Tensor};
}
pub mod config {
    pub use crate::config::{
        AllowedBackends, CpuDecode, FieldOptions, FieldValue, GpuDecoder, LANES, LoaderConfig, LoaderKind,
        LoaderOptions, OnError, SETTINGS, SettingsClass, SettingsObject, Weights, has_unwatched_quota,
        manual, parameters, parse_pfs, signature, stub,
    };
}
pub mod dataset {
    pub use crate::dataset::{
        Changed, ClassRef, Contents, DatasetIndex, Extent, FieldKind, FileId, FileVersion, Fingerprint,
        IndexOptions, IndexOrigin, IndexSummary, Layout, MemberBytes, Select, Stamp, Stretches, TICK,
        TableField,
    };
    pub mod archive {
        pub use crate::dataset::archive::{TarMember, TarMembers};
    }
    pub mod build {
        pub use crate::dataset::build::{
            FileRow, GroupRows, IndexBuilder, IndexFacts, IndexGroup, SampleRow, ShardRows,
        };
    }
    pub mod packed {
        pub use crate::dataset::packed::shard_contents;
    }
    pub mod tables {
        pub use crate::dataset::arrow::table as arrow;
        pub use crate::dataset::parquet::table as parquet;
        pub use crate::dataset::table::{CellExtent, ShardTable, TableCells, TableColumn};
    }
    pub mod shards {
        pub use crate::dataset::shards::{Stems, contents};
    }
    pub mod layouts {
        pub use crate::dataset::layouts::{mds_table, tar_of_tars, tf_examples};
    }
    pub mod table {
        pub use crate::dataset::table::{CellExtent, ShardTable, TableCells, TableColumn};
    }
    pub mod tfrecord {
        pub use crate::dataset::layouts::records;
    }
}
pub mod decode {
    pub use crate::decode::{
        Backend, ColorModel, Damaged, Decoded, Decoder, JpegHeader, Plane, Planes, PlanesLayout, Region,
        parse_header,
    };
    pub mod forms {
        pub use crate::decode::forms::{
            FileForm, FileRestorer, FormMaker, Kept, MadeForm, RestoredFile, form_of, original_length,
        };
    }
    pub mod packed {
        pub use crate::decode::packed::{PackedOutline, Packer, Restorer};
    }
    pub mod cuda {
        pub use crate::decode::cuda::{OwnImage, OwnKernel, OwnLaunch, OwnPlaces, OwnPlan, OwnTables};
    }
    pub mod nvjpeg {
        pub use crate::decode::nvjpeg::{
            Abilities, Ability, Library, NvJpegBackend, NvJpegDecoder, PlaneTarget, Request, Subsampling,
            Verdict, by_host,
        };
    }
}
pub mod gpu {
    pub use crate::gpu::{
        Arg, Capability, DeviceBuffer, Event, Function, GpuDevice, InFlight, KernelImage, MemoryPool, Module,
        PinnedBuffer, PinnedSlice, Registration, Stream, StreamRef,
    };
}
pub mod io {
    pub use crate::io::{
        Completion, DataSource, Direct, Files, GroupBell, GroupedReader, IoChoice, ListeningReader,
        OwnThread, Pfs, PfsRates, PfsStats, ReadRequest, ReadStats, Reader, ReaderGroup, Throttled, Waker,
        open, open_source, probe, read_blocking,
    };
    pub mod fault {
        pub use crate::io::fault::{FaultOptions, FaultReader};
    }
    pub mod pread {
        pub use crate::io::pread::{PreadOptions, PreadReader};
    }
    pub mod storage {
        pub use crate::io::storage::{Storage, StorageKind};
    }
    pub mod uring {
        pub use crate::io::uring::{RingMode, UringOptions, UringReader};
    }
}
pub mod parts {
    pub use crate::parts::ByteParts;
}
pub mod peers {
    pub use crate::peers::{
        Accepted, BreakerLimits, BreakerState, Bytes, CertificatePin, ConnectionLimits, CopyBytes,
        DeadlineLimits, Found, HttpOptions, HttpTransfer, Miss, Peer, PeerAnswer, PeerCopy, PeerCounts,
        PeerPusher, PeerRead, PeerStats, PeerTransfer, Server, ServerOptions, ServerStats, SharedDataset,
        Shelf, TlsIdentity, Token,
    };
}
pub mod pipeline {
    pub use crate::pipeline::{Epoch, EpochStats, Pipeline, Poll, release_gpus};
}
pub mod rng {
    pub use crate::rng::{RandomKey, RandomStream, Use};
}
pub mod schedule {
    pub use crate::schedule::{
        Assignment, BatchEntry, Draw, LastBatch, Order, SampleHomes, Schedule, Selection, SequenceParts,
        Shuffling, TABLE_LIMIT,
    };
}
pub mod simd {
    pub use crate::simd::Level;
}
pub mod simulate {
    pub use crate::simulate::{Bytes, Policy, PolicyOutcome, Scenario, Simulation, counts};
    pub mod access {
        pub use crate::simulate::access::{AccessSchedule, Sizes};
    }
}
pub mod slot {
    pub use crate::slot::{PAGE, SlotPool};
}
pub mod state {
    pub use crate::state::{OrderIdentity, State};
}
pub mod stream {
    pub use crate::stream::record::{Record, sample_id};
    pub use crate::stream::share::RankShare;
    pub use crate::stream::source::{Arrival, Received, Replay, SourcePosition, StreamSource};
    pub use crate::stream::sources::redis::{RedisOptions, RedisSource};
    pub use crate::stream::sources::zeromq::{ZeroMqKind, ZeroMqOptions, ZeroMqSource};
    pub mod segments {
        pub use crate::stream::segments::{
            AppendError, MovedRecord, RecordPlace, SegmentOptions, SegmentStore, StoreFull, StoredRecord,
        };
    }
}
pub mod tier {
    pub use crate::tier::{CacheStats, FillChoice, FormChoice, Machine, TierOptions, TierStats, Verify};
    pub mod store {
        pub use crate::crc::checksum;
        pub use crate::io::drive::WriteFaults;
        pub use crate::tier::copies::{CopyFault, Location, Offer};
        pub use crate::tier::store::{Store, StoreOptions};
        pub mod inspect {
            pub use crate::tier::store::inspect::{clear, contents};
        }
    }
}
pub mod trace {
    pub use crate::trace::{Stage, Trace, read};
}
