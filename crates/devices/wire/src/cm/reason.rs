//! Reasons of a REJ (IBTA vol. 1, table 106).

use std::fmt;

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// No queue pair is available.
    pub const NO_QP: RejectReason = RejectReason(1);
    /// No resources are available.
    pub const NO_RESOURCES: RejectReason = RejectReason(3);
    /// The answer did not arrive in time.
    pub const TIMEOUT: RejectReason = RejectReason(4);
    /// The request is not supported.
    pub const UNSUPPORTED: RejectReason = RejectReason(5);
    /// The name of the connection is unknown.
    pub const INVALID_COMM_ID: RejectReason = RejectReason(6);
    /// Nothing listens for the service.
    pub const INVALID_SERVICE_ID: RejectReason = RejectReason(8);
    /// The transport service does not fit the listener.
    pub const INVALID_SERVICE_TYPE: RejectReason = RejectReason(9);
    /// A connection of the same queue pair or name exists.
    pub const STALE_CONNECTION: RejectReason = RejectReason(10);
    /// The program refused it; the private data are the program's.
    pub const CONSUMER: RejectReason = RejectReason(28);

    /// Returns a description; `None` for codes that table 106 does not define.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "no queue pair available",
            2 => "no EE context available",
            3 => "no resources available",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication ID",
            7 => "invalid communication instance",
            8 => "nothing listens for the service ID",
            9 => "invalid transport service type",
            10 => "stale connection",
            11 => "RDC does not exist",
            12 => "primary remote port GID rejected",
            13 => "primary remote port LID rejected",
            14 => "invalid primary SL",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            18 => "alternate remote port GID rejected",
            19 => "alternate remote port LID rejected",
            20 => "invalid alternate SL",
            21 => "invalid alternate traffic class",
            22 => "invalid alternate hop limit",
            23 => "invalid alternate packet rate",
            24 => "port and CM redirection",
            25 => "port redirection",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "rejected by the program",
            29 => "RNR retry count rejected",
            30 => "duplicate local communication ID",
            31 => "invalid class version",
            32 => "invalid primary flow label",
            33 => "invalid alternate flow label",
            _ => return None,
        })
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "reason {}", self.0),
        }
    }
}
