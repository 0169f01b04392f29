//! The 62 columns of a data file, by name.

use std::fmt;

macro_rules! columns {
    ($($column:ident = $name:literal,)+) => {
        /// A column of the data. `data/schema.md` defines each, with its unit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Column {
            $(#[doc = concat!("`", $name, "`")] $column,)+
        }

        impl Column {
            /// All columns, in the order of the shipped files.
            pub const ALL: &'static [Column] = &[$(Column::$column,)+];

            /// Its name in the header.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Column::$column => $name,)+
                }
            }
        }
    };
}

columns! {
    Id = "id",
    Source = "source",
    Exactness = "exactness",
    Curve = "curve",
    Preset = "preset",
    Program = "program",
    Opcode = "opcode",
    Transport = "transport",
    SizeBytes = "size_bytes",
    Inline = "inline",
    InlineRecv = "inline_recv",
    HeaderOnly = "header_only",
    SignaledEvery = "signaled_every",
    Completion = "completion",
    PostList = "post_list",
    Refill = "refill",
    Qps = "qps",
    QpsPerCore = "qps_per_core",
    Outstanding = "outstanding",
    WindowPerCore = "window_per_core",
    MaxRdAtomic = "max_rd_atomic",
    Cores = "cores",
    Peers = "peers",
    PeerThreads = "peer_threads",
    PeerOutstanding = "peer_outstanding",
    PeerWindow = "peer_window",
    OfferedOpsPerS = "offered_ops_per_s",
    MeasuredAt = "measured_at",
    NumaBuffer = "numa_buffer",
    NumaRequester = "numa_requester",
    BufferState = "buffer_state",
    SharedCacheLine = "shared_cache_line",
    Ddio = "ddio",
    DdioWays = "ddio_ways",
    LoadThreads = "load_threads",
    LoadOp = "load_op",
    LoadWriteRatio = "load_write_ratio",
    LoadNuma = "load_numa",
    LoadTarget = "load_target",
    Counters = "counters",
    PutRatio = "put_ratio",
    GetReads = "get_reads",
    GetReadBytes = "get_read_bytes",
    DcTarget = "dc_target",
    Interferer = "interferer",
    RxDescriptors = "rx_descriptors",
    Iommu = "iommu",
    WindowBytes = "window_bytes",
    Session = "session",
    Mtu = "mtu",
    LinkGbps = "link_gbps",
    LinkDelayUs = "link_delay_us",
    Metric = "metric",
    Value = "value",
    Unit = "unit",
    Lo = "lo",
    Hi = "hi",
    Of = "of",
    Base = "base",
    RatioTo = "ratio_to",
    Grade = "grade",
    Notes = "notes",
}

impl Column {
    /// Returns the column of this name.
    pub fn named(name: &str) -> Option<Column> {
        Column::ALL.iter().copied().find(|c| c.name() == name)
    }

    /// Whether it describes the experiment, so that `base` may override it. The other columns describe the
    /// publication.
    pub const fn describes_the_experiment(self) -> bool {
        !matches!(
            self,
            Column::Id
                | Column::Source
                | Column::Exactness
                | Column::Curve
                | Column::Metric
                | Column::Value
                | Column::Unit
                | Column::Lo
                | Column::Hi
                | Column::Of
                | Column::Base
                | Column::RatioTo
                | Column::Grade
                | Column::Notes
        )
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
