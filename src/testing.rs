//! Internals that tests and benchmarks use. Only tests and benchmarks turn on the `testing` feature; none of this is a
//! public API.

#![allow(missing_docs)]

pub mod augment {
    pub use ::pixels::augment::{
        Augmenter, Axis, DType, Fidelity, Filter, ImageSize, ImageTransforms, MemoryFormat, Output, Padding,
        Recipe, Renderer, Transform, Transforms, View, transforms_stub,
    };
    pub mod cuda {
        pub use ::pixels::augment::cuda::{
            ImageParams, Kernels, Launch, Launcher, OutputParams, POISON, PoisonCheck,
        };
    }
}
pub mod batch {
    pub use ::engine::batch::{Batch, Place, Tensor};
}
pub mod config {
    pub use ::engine::config::{
        AllowedBackends, CpuDecode, FieldOptions, FieldValue, GpuDecoder, LANES, LoaderConfig, LoaderKind,
        LoaderOptions, OnError, Setting, SettingsClass, SettingsObject, Weights, has_unwatched_quota, manual,
        parameters, parse_pfs, signature, stub, stub_of_objects,
    };
}
pub mod dataset {
    pub use ::data::dataset::{
        BlockCache, Changed, ClassRef, Contents, DatasetIndex, Extent, FieldKind, FileBlock, FileId,
        FileVersion, Fingerprint, IndexOptions, IndexOrigin, IndexSummary, Layout, MemberBytes,
        NeighbourBlocks, SampleAxis, Select, Stamp, TICK, TableField,
    };
    pub mod archive {
        pub use ::data::dataset::archive::{TarMember, TarMembers};
    }
    pub mod arrays {
        pub use ::data::dataset::arrays::filters::{ChunkScratch, unpack_chunk};
        pub use ::data::dataset::arrays::record::{Piece, RecordRanges, SampleRecord};
        pub use ::data::dataset::arrays::{ArrayField, ArrayRegion, CHUNKS, ChunkCell, RECORDS, SharedChunk};
    }
    pub mod build {
        pub use ::data::dataset::build::{
            FileRow, GroupRows, IndexBuilder, IndexFacts, IndexGroup, SampleRow, ShardRows,
        };
    }
    pub mod packed {
        pub use ::data::dataset::packed::shard_contents;
    }
    pub mod tables {
        pub use ::data::dataset::arrow::table as arrow;
        pub use ::data::dataset::parquet::table as parquet;
        pub use ::data::dataset::table::{CellExtent, ShardTable, TableCells, TableColumn};
    }
    pub mod shards {
        pub use ::data::dataset::shards::{Stems, contents};
    }
    pub mod layouts {
        pub use ::data::dataset::layouts::{mds_table, tar_of_tars, tf_examples};
    }
    pub mod table {
        pub use ::data::dataset::table::{CellExtent, ShardTable, TableCells, TableColumn};
    }
    pub mod tfrecord {
        pub use ::data::dataset::layouts::records;
    }
}
pub mod decode {
    pub use ::pixels::decode::{
        Backend, ColorModel, Damaged, Decoded, Decoder, JpegHeader, Plane, Planes, PlanesLayout, Region,
        RowStarts, parse_header,
    };
    pub mod forms {
        pub use ::pixels::decode::forms::{
            ConvertedFormat, FileRestorer, FormatConverter, KeepReason, RestoredFile, StorageFormat,
            original_length, storage_format_of,
        };
    }
    pub mod packed {
        pub use ::pixels::decode::packed::{PackedHeaderSummary, Packer, Restorer};
    }
    pub mod cuda {
        pub use ::pixels::decode::cuda::{
            CudaImage, CudaKernel, CudaLaunch, CudaPlan, ImageAddresses, LaunchTables,
        };
    }
    pub mod nvjpeg {
        pub use ::pixels::decode::nvjpeg::{
            Abilities, Ability, CallOutcomes, Library, NvJpegBackend, NvJpegDecoder, PlaneTarget, Request,
            Subsampling, host_decodes_huffman,
        };
    }
}
pub mod gpu {
    pub use ::pixels::gpu::{
        Arg, Capability, DeviceBuffer, Event, Function, GpuDevice, InFlight, KernelImage, MemoryPool, Module,
        PinnedBuffer, PinnedSlice, Registration, Stream, StreamRef,
    };
}
pub mod io {
    pub use ::store::io::{
        Completion, DataSource, DelayedReader, Direct, Files, Filled, GatherReader, GroupWaker,
        GroupedReader, IoChoice, ListeningReader, OwnThread, ParallelFsModel, ParallelFsRates, PfsStats,
        ReadRequest, ReadStats, Reader, ReaderGroup, RemoteFile, Waker, open, open_source, probe,
        read_blocking, record_room, unpacking,
    };
    pub mod pread {
        pub use ::store::io::pread::{PreadOptions, PreadReader};
    }
    pub mod storage {
        pub use ::store::io::storage::{Storage, StorageKind};
    }
    pub mod uring {
        pub use ::store::io::uring::{RingMode, UringOptions, UringReader};
    }
}
pub mod parts {
    pub use ::base::parts::WantedBytes;
}
pub mod peers {
    pub use ::store::peers::{
        Accepted, BreakerLimits, BreakerState, Bytes, CertificatePin, ConnectionLimits, CopyBytes,
        DeadlineLimits, Found, HttpOptions, HttpTransfer, Miss, Peer, PeerAnswer, PeerCopy, PeerCounts,
        PeerPusher, PeerRead, PeerStats, ServedCache, Server, ServerOptions, ServerStats, SharedDataset,
        TlsIdentity, Token,
    };
}
pub mod pipeline {
    pub use ::engine::pipeline::{Epoch, EpochStats, Pipeline, Poll, release_gpus};
}
pub mod rng {
    pub use ::base::rng::{RandomKey, RandomStream, Use};
}
pub mod schedule {
    pub use ::data::schedule::{
        Assignment, BatchEntry, BucketSizes, BucketTable, CostTable, Draw, LastBatch, Order, RankRanges,
        SampleOwners, Schedule, Selection, Shuffling, TABLE_LIMIT,
    };
}
pub mod simd {
    pub use ::base::simd::Level;
}
#[cfg(feature = "simulate")]
pub mod simulate {
    pub use ::simulate::{Bytes, Policy, PolicyOutcome, Scenario, Simulation, counts};
    pub mod access {
        pub use ::simulate::access::{AccessSchedule, Sizes};
    }
}
pub mod slot {
    pub use ::base::slot::{PAGE, SlotPool};
}
pub mod state {
    pub use ::data::state::{OrderIdentity, State};
}
pub mod stream {
    pub use ::stream::record::{Record, sample_id};
    pub use ::stream::share::RankShare;
    pub use ::stream::source::{Arrival, Received, Replay, SourcePosition, StreamSource};
    #[cfg(feature = "redis")]
    pub use ::stream::sources::redis::{RedisOptions, RedisSource};
    #[cfg(feature = "zeromq")]
    pub use ::stream::sources::zeromq::{ZeroMqKind, ZeroMqOptions, ZeroMqSource};
    pub mod segments {
        pub use ::stream::segments::{
            AppendError, MovedRecord, RecordPlace, SegmentOptions, SegmentStore, StoreFull, StoredRecord,
        };
    }
}
pub mod tier {
    pub use ::store::tier::{CacheStats, FillChoice, FormChoice, Machine, TierOptions, TierStats, Verify};
    pub mod store {
        pub use ::base::crc::checksum;
        pub use ::store::segments::drive::WriteFaults;
        pub use ::store::tier::copies::{CopyFault, Location, Offer};
        pub use ::store::tier::store::{Store, StoreOptions};
        pub mod inspect {
            pub use ::store::tier::store::inspect::{clear, contents};
        }
    }
}
pub mod trace {
    pub use ::base::trace::{Stage, Trace, read};
}
