//! What registered memory costs the file system that holds it.

use adverb_softnic::SoftDevice;
use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, AddressVector, CompletionQueue, Context, Device, MemoryRegion, Operation, PathMtu,
    PortNum, Psn, QpAttr, QpCaps, QpInit, QpType, QueuePair, SendFlags, SendRequest,
    WorkCompletion, WrId,
};

/// Enough to tell from noise, little enough for a container’s 64 MiB.
const LENGTH: Bytes = Bytes::mib(32);

fn free_bytes() -> u64 {
    let place = std::env::var_os("ADVERB_SHM").unwrap_or_else(|| "/dev/shm".into());
    let stat = rustix::fs::statvfs(place).unwrap();
    stat.f_bfree * stat.f_frsize
}

/// A peer that has the region mapped does not keep its pages.
#[test]
fn deregistering_gives_the_memory_back_while_a_peer_still_maps_it() {
    let (a, b) = (
        SoftDevice::new().open().unwrap(),
        SoftDevice::new().open().unwrap(),
    );
    let (pd_a, pd_b) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
    let (cq_a, cq_b) = (a.create_cq(4, None).unwrap(), b.create_cq(4, None).unwrap());
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let init = |cq| QpInit::new(QpType::Rc, cq, QpCaps::default());
    let qp_a = a.create_qp(&pd_a, &init(&cq_a)).unwrap();
    let qp_b = b.create_qp(&pd_b, &init(&cq_b)).unwrap();
    for (qp, to) in [(&qp_a, &qp_b), (&qp_b, &qp_a)] {
        let port = a.port(PortNum::ONE).unwrap();
        let address = AddressVector::new(port.gid, port.lid, PortNum::ONE);
        qp.modify(&QpAttr::to_init(PortNum::ONE, access)).unwrap();
        qp.modify(&QpAttr::to_rtr(
            address,
            to.qpn(),
            Psn::new(0),
            PathMtu::B4096,
        ))
        .unwrap();
        qp.modify(&QpAttr::to_rts(Psn::new(0))).unwrap();
    }
    let source = a.alloc_mr(&pd_a, Bytes::kib(4), access).unwrap();
    let before = free_bytes();
    let target = b.alloc_mr(&pd_b, LENGTH, access).unwrap();
    let sges = [source.sge(0, 8).unwrap()];
    let write = SendRequest::new(WrId(1), Operation::RdmaWrite(target.remote(0)), &sges);
    qp_a.post_send(&[write.with_flags(SendFlags::SIGNALED)])
        .unwrap();
    let mut completion = [WorkCompletion::default()];
    assert_eq!(cq_a.poll(&mut completion), Ok(1));
    assert!(completion[0].status.is_success());
    assert!(
        free_bytes() + LENGTH.get() / 2 < before,
        "the region takes its memory"
    );
    drop(target);
    assert!(
        free_bytes() + LENGTH.get() / 2 > before,
        "the region gives its memory back"
    );
}
