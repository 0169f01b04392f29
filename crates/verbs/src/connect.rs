//! What two ends tell each other out of band before their queue pairs can talk.

use serde::{Deserialize, Serialize};

use crate::ids::{Gid, Lid, PortNum, Psn, Qpn};

/// One end of a connection: the address of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The queue pair.
    pub qpn: Qpn,
    /// The first packet it will send.
    pub psn: Psn,
    /// Its port's GID.
    pub gid: Gid,
    /// Its port's LID; 0 where there is none.
    pub lid: Lid,
    /// Its port.
    pub port: PortNum,
}
