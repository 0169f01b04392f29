//! The kinds of hardware, and of drivers.

/// How a driver passes WQEs to the NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// Upstream libmlx4 writes a single inline request by MMIO (BlueFlame), and since 2007 also a READ (commit
    /// 662a76523 of rdma-core, "This improves latency"). For all others it rings a doorbell and the NIC reads them.
    Mlx4Upstream,
    /// libmlx4 of MLNX OFED writes any single request that is short enough by MMIO.
    #[default]
    Mlx4Mlnx,
    /// libmlx5 of MLNX OFED does the same, and writes the last request of a list by MMIO, which rings the
    /// doorbell. (libmlx5 of rdma-core writes only single requests by MMIO.)
    Mlx5,
    /// Doorbells only: the NIC reads all requests.
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
        name_of(&Self::NAMES, self)
    }
}

/// The kind of hardware that a preset describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// An RDMA NIC with its host and link: `model:NAME` names the device.
    #[default]
    Nic,
    /// A PCIe device that only reads and writes its host's memory: no queue pairs, no link.
    BareDevice,
}

impl Kind {
    pub(super) const NAMES: [(&'static str, Kind); 2] =
        [("nic", Kind::Nic), ("bare-device", Kind::BareDevice)];

    /// Its name in preset files.
    pub fn name(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }
}

fn name_of<T: Copy + PartialEq>(names: &[(&'static str, T)], named: T) -> &'static str {
    let found = names.iter().find(|(_, of)| *of == named);
    found.map_or("", |(name, _)| name)
}
