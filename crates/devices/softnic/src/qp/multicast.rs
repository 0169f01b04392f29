//! Multicast groups of UD queue pairs. Only the UDP port supports them.

use adverb_verbs::{Gid, McastError, QpType, Unsupported};

use super::QpInner;
use crate::udp::{Udp, ip_of};

impl QpInner {
    /// Returns the UDP port, if the queue pair may be in the group.
    fn port_of_groups(&self, gid: Gid) -> Result<&Udp, McastError> {
        McastError::check(self.service, gid)?;
        self.port.udp.as_ref().ok_or_else(|| {
            McastError::Unsupported(Unsupported {
                feature: "multicast groups without a UDP port (soft@ADDR has one)",
                device: "soft".into(),
            })
        })
    }

    pub(super) fn attach_mcast(&self, gid: Gid) -> Result<(), McastError> {
        let udp = self.port_of_groups(gid)?;
        udp.join(&*self.port, self.qpn, ip_of(gid))
            .map_err(|refusal| refusal.of_group(gid))
    }

    pub(super) fn detach_mcast(&self, gid: Gid) -> Result<(), McastError> {
        let udp = self.port_of_groups(gid)?;
        match udp.leave(self.qpn, ip_of(gid)) {
            true => Ok(()),
            false => Err(McastError::NotAttached { gid }),
        }
    }

    /// Whether the queue pair is attached to a group.
    pub(super) fn is_in_group(&self) -> bool {
        let port = self
            .port
            .udp
            .as_ref()
            .filter(|_| self.service == QpType::Ud);
        port.is_some_and(|udp| udp.is_in_group(self.qpn))
    }

    /// Removes the queue pair from all groups before it is destroyed.
    pub(super) fn leave_groups(&self) {
        if let (QpType::Ud, Some(udp)) = (self.service, &self.port.udp) {
            udp.leave_all(self.qpn);
        }
    }
}
