//! Sockets of kernel TCP, with which RDMA is compared. They are not part of the verbs traits.

use crate::cluster::Cluster;
use crate::host::tcp::End;
use crate::ids::MachineId;
use crate::rate::ns;
use crate::station::ModelStation;
use crate::world::fabric::Event;

/// One end of a TCP connection between two machines.
#[derive(Debug)]
pub struct Socket {
    end: u32,
}

impl Cluster {
    /// Connects two machines by kernel TCP, through plain Ethernet NICs of the port's speed.
    pub fn connect(&mut self, a: MachineId, b: MachineId) -> (Socket, Socket) {
        let shared = self.shared();
        let end = |machine: MachineId| {
            shared.with(|fabric, events| {
                let end = fabric.ends.len() as u32;
                let conditions = ["data of", "room of"]
                    .map(|what| events.condition(format!("{what} socket {end}")));
                fabric.ends.push(End::new(machine, conditions));
                Socket { end }
            })
        };
        (end(a), end(b))
    }
}

impl Socket {
    /// Sends `bytes` (`send`); returns when the kernel has accepted them all.
    pub fn send(&self, station: &ModelStation<'_>, bytes: u64) {
        let end = self.end as usize;
        let (window, largest, work, byte, doorbell) = station.role().with(|fabric, _| {
            let machine = &fabric.machines[fabric.ends[end].machine];
            let tcp = &machine.preset.params.tcp;
            (
                tcp.window_bytes.into(),
                machine.largest_piece(),
                tcp.process_ns,
                tcp.copy_byte_ns,
                machine.cpu.doorbell_ns,
            )
        });
        station.system_call();
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(largest);
            self.wait_for_room(station, piece, window);
            let copy = ns(byte * piece as f64);
            station.in_kernel(copy + work + doorbell);
            station.role().with(|fabric, events| {
                let this = &mut fabric.ends[end];
                this.unacknowledged += piece;
                let way = fabric.machines[this.machine].pcie.way();
                let at = events.clock.now() + way;
                let end = self.end;
                events.schedule(at, Event::TcpSend { end, bytes: piece });
            });
            left -= piece;
        }
    }

    /// Sleeps until the window has room for a piece. An empty window always has.
    fn wait_for_room(&self, station: &ModelStation<'_>, piece: u64, window: u64) {
        station.role().sync();
        loop {
            let (in_flight, condition) = station.role().with(|fabric, _| {
                let this = &fabric.ends[self.end as usize];
                (this.unacknowledged, this.room)
            });
            if in_flight == 0 || in_flight + piece <= window {
                return;
            }
            station.sleep_until_woken(condition);
        }
    }

    /// Receives exactly `bytes` (`recv` with `MSG_WAITALL`), sleeping until they have arrived.
    pub fn receive(&self, station: &ModelStation<'_>, bytes: u64) {
        station.system_call();
        let mut left = bytes;
        loop {
            station.role().sync();
            let (taken, byte, condition, interrupts) = station.role().with(|fabric, _| {
                let this = &mut fabric.ends[self.end as usize];
                let taken = this.readable.min(left);
                this.readable -= taken;
                let interrupts = std::mem::take(&mut this.interrupts);
                let tcp = &fabric.machines[this.machine].preset.params.tcp;
                (taken, tcp.copy_byte_ns, this.data, interrupts)
            });
            station.not_idle(interrupts);
            left -= taken;
            if taken > 0 {
                station.in_kernel(ns(byte * taken as f64));
            }
            if left == 0 {
                return;
            }
            if taken == 0 {
                station.sleep_until_woken(condition);
            }
        }
    }
}

impl ModelStation<'_> {
    fn system_call(&self) {
        self.in_kernel(self.times().syscall_ns);
    }

    /// Sleeps until `condition` is signaled, and wakes up.
    fn sleep_until_woken(&self, condition: adverb_sim::Condition) {
        self.idle_for(condition, None);
        self.wake_up();
    }
}
