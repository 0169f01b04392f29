//! What kind of hardware a preset is of, and how its driver posts.

/// How a driver brings requests to the NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// Upstream libmlx4: a single inline request goes by MMIO (BlueFlame), and so does a READ since 2007
    /// (commit 662a76523 of rdma-core, "This improves latency"); for all others it rings a doorbell and the NIC reads them.
    Mlx4Upstream,
    /// libmlx4 of MLNX OFED: any single request that is short enough goes by MMIO.
    #[default]
    Mlx4Mlnx,
    /// libmlx5 of MLNX OFED: as that, and the last request of a list goes by MMIO too, which rings the
    /// doorbell. (That of rdma-core writes whole requests by MMIO only where they are single.)
    Mlx5,
    /// No MMIO: doorbells only.
    Doorbell,
}

impl Driver {
    pub(super) const NAMES: [(&'static str, Driver); 4] = [
        ("mlx4-upstream", Driver::Mlx4Upstream),
        ("mlx4-mlnx", Driver::Mlx4Mlnx),
        ("mlx5", Driver::Mlx5),
        ("doorbell", Driver::Doorbell),
    ];

    /// Its name in preset files.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, driver)| *driver == self)
            .map_or("", |(name, _)| name)
    }
}

/// What kind of hardware a preset is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// An RDMA NIC with its host and link: `model:NAME` names the device.
    #[default]
    Nic,
    /// A PCIe device that only moves bytes to and from its host's memory: no queue pairs, no link.
    BareDevice,
}

impl Kind {
    pub(super) const NAMES: [(&'static str, Kind); 2] =
        [("nic", Kind::Nic), ("bare-device", Kind::BareDevice)];

    /// Its name in preset files.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(name, _)| name)
    }
}
