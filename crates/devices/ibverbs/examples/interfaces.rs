//! What posting and polling cost through a driver's classic and its extended interface, in turn.
//!
//! ```console
//! $ cargo run --release -p adverb-ibverbs --example interfaces -- mlx5_0
//! ```
//!
//! Two queue pairs of one device are connected to each other. A round posts 64 signaled inline
//! WRITEs of 8 B in lists of 1 or 16, waits until they are done, and polls their completions. Printed
//! are medians over the rounds in ns, and their ratio. Drivers that carry requests out while they
//! are posted (Soft-RoCE) count that, too.

use std::error::Error;
use std::time::{Duration, Instant};

use adverb_ibverbs::{Interface, VerbsContext, VerbsCq, VerbsDevice, VerbsMr, VerbsQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, AddressVector, CompletionQueue, Context, Device, MemoryRegion, Operation, Psn,
    QpAttr, QpCaps, QpInit, QpType, QueuePair, SendFlags, SendRequest, WorkCompletion, WrId,
};

const ROUNDS: usize = 301;
const REQUESTS: usize = 64;
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE);
const FLAGS: SendFlags = SendFlags::SIGNALED.union(SendFlags::INLINE);

/// A queue pair, connected to another of the device.
struct Loop {
    qp: VerbsQp,
    cq: VerbsCq,
    mr: VerbsMr,
    _peer: VerbsQp,
    _context: VerbsContext,
}

impl Loop {
    fn new(device: &VerbsDevice, interface: Interface) -> Result<Self, Box<dyn Error>> {
        let device = device
            .clone()
            .with_posting(interface)
            .with_polling(interface);
        let context = device.open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(REQUESTS as u32 * 2, None)?;
        let mr = context.alloc_mr(&pd, Bytes::kib(4), ACCESS)?;
        let caps = QpCaps {
            max_inline_data: 8,
            ..QpCaps::default()
        };
        let init = QpInit::new(QpType::Rc, &cq, caps);
        let (qp, peer) = (
            context.create_qp(&pd, &init)?,
            context.create_qp(&pd, &init)?,
        );
        connect(&context, &qp, &peer)?;
        connect(&context, &peer, &qp)?;
        Ok(Loop {
            qp,
            cq,
            mr,
            _peer: peer,
            _context: context,
        })
    }

    /// One round: ns for posting a list, and for polling a completion.
    fn round(&self, list: usize) -> Result<(f64, f64), Box<dyn Error>> {
        let sges = [self.mr.sge(0, 8)?];
        let to = self.mr.remote(64);
        let request = SendRequest::new(WrId(1), Operation::RdmaWrite(to), &sges);
        let requests = vec![request.with_flags(FLAGS); list];
        let lists = REQUESTS / list;
        let begin = Instant::now();
        for _ in 0..lists {
            self.qp.post_send(&requests)?;
        }
        let posting = begin.elapsed();
        std::thread::sleep(Duration::from_millis(3));
        let mut found = 0;
        let mut into = [WorkCompletion::default(); 16];
        let begin = Instant::now();
        while found < REQUESTS {
            found += self.cq.poll(&mut into)?;
        }
        let polling = begin.elapsed();
        let per = |time: Duration, count: usize| time.as_nanos() as f64 / count as f64;
        Ok((per(posting, lists), per(polling, REQUESTS)))
    }
}

fn connect(context: &VerbsContext, qp: &VerbsQp, to: &VerbsQp) -> Result<(), Box<dyn Error>> {
    let port = context.port(context.port_num())?;
    let address = AddressVector::new(port.gid, port.lid, context.port_num());
    qp.modify(&QpAttr::to_init(context.port_num(), ACCESS))?;
    qp.modify(&QpAttr::to_rtr(
        address,
        to.qpn(),
        Psn::new(0),
        port.active_mtu,
    ))?;
    qp.modify(&QpAttr::to_rts(Psn::new(0)))?;
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args()
        .nth(1)
        .ok_or("name a device, such as rxe0")?;
    let device: VerbsDevice = name.parse()?;
    let classic = Loop::new(&device, Interface::Classic)?;
    let extended = Loop::new(&device, Interface::Extended)?;
    println!(
        "{:32} {:>10} {:>10} {:>20}",
        "median, ns", "classic", "extended", "extended/classic"
    );
    for list in [1, 16] {
        let mut figures = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            let (post, poll) = classic.round(list)?;
            let (post_ex, poll_ex) = extended.round(list)?;
            for (to, figure) in figures.iter_mut().zip([post, post_ex, poll, poll_ex]) {
                to.push(figure);
            }
        }
        let [post, post_ex, poll, poll_ex] = figures.map(median);
        let post_row = format!("post a list of {list}");
        let poll_row = format!("poll a completion ({list} a list)");
        for (what, old, new) in [(post_row, post, post_ex), (poll_row, poll, poll_ex)] {
            println!("{what:32} {old:10.0} {new:10.0} {:20.2}", new / old);
        }
    }
    Ok(())
}
