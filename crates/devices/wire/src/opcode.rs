//! Opcodes (IBTA vol. 1, table 38): transport service, verb, position of a packet in its message, and extended headers.

/// Transport service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification (annex A17.9.3).
    Cnp,
    /// Extended reliable connection (annex A14).
    Xrc,
}

/// The verb that a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// ACK or NAK.
    Ack,
    /// Response to an atomic operation.
    AtomicAck,
    /// Compare-and-swap request.
    CompareSwap,
    /// Fetch-and-add request.
    FetchAdd,
    /// Congestion notification.
    Cnp,
}

impl Verb {
    /// Whether the responder sends it.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(self, Verb::ReadResponse | Verb::Ack | Verb::AtomicAck)
    }
}

/// The position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// Whether it is the first of its message.
    #[inline]
    pub const fn begins(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }

    /// Whether it is the last of its message.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }

    /// Returns the position of a packet, given what begins and ends with it.
    #[inline]
    pub const fn of(begin: Begins, end: Ends) -> Self {
        match (begin, end) {
            (Begins::Message, Ends::Message) => Position::Only,
            (Begins::Message, Ends::Packet) => Position::First,
            (Begins::Packet, Ends::Message) => Position::Last,
            (Begins::Packet, Ends::Packet) => Position::Middle,
        }
    }
}

/// What begins with the first byte of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// The message.
    Message,
    /// The packet only.
    Packet,
}

/// What ends with the last byte of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The message.
    Message,
    /// The packet only.
    Packet,
}

bitflags::bitflags! {
    /// Extended headers, in their order.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Headers: u8 {
        /// Datagram extended transport header.
        const DETH = 1;
        /// RDMA extended transport header.
        const RETH = 1 << 1;
        /// Atomic extended transport header.
        const ATOMIC_ETH = 1 << 2;
        /// ACK extended transport header.
        const AETH = 1 << 3;
        /// Atomic ACK extended transport header.
        const ATOMIC_ACK_ETH = 1 << 4;
        /// Immediate data.
        const IMM_DT = 1 << 5;
        /// Invalidate extended transport header.
        const IETH = 1 << 6;
        /// XRC extended transport header. It precedes all others.
        const XRC_ETH = 1 << 7;
    }
}

macro_rules! opcodes {
    ($($name:ident = $code:literal, $text:literal, $service:ident, $verb:ident, $position:ident, [$($header:ident)*];)*) => {
        /// The opcode of a packet, with the names of IBTA table 38.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $(#[doc = $text] $name = $code,)*
        }

        impl Opcode {
            /// All opcodes.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$name),*];

            /// Returns the opcode with this code.
            #[inline]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Opcode::$name),)*
                    _ => None,
                }
            }

            /// Returns its name.
            pub const fn name(self) -> &'static str {
                match self { $(Opcode::$name => $text,)* }
            }

            /// Returns its transport service.
            #[inline]
            pub const fn service(self) -> Service {
                match self { $(Opcode::$name => Service::$service,)* }
            }

            /// Returns its verb.
            #[inline]
            pub const fn verb(self) -> Verb {
                match self { $(Opcode::$name => Verb::$verb,)* }
            }

            /// Returns its position in its message.
            #[inline]
            pub const fn position(self) -> Position {
                match self { $(Opcode::$name => Position::$position,)* }
            }

            /// Returns the headers that follow the base transport header.
            #[inline]
            pub const fn headers(self) -> Headers {
                match self {
                    $(Opcode::$name => Headers::empty()$(.union(Headers::$header))*,)*
                }
            }
        }
    };
}

opcodes! {
    RcSendFirst = 0x00, "RC SEND first", Rc, Send, First, [];
    RcSendMiddle = 0x01, "RC SEND middle", Rc, Send, Middle, [];
    RcSendLast = 0x02, "RC SEND last", Rc, Send, Last, [];
    RcSendLastImm = 0x03, "RC SEND last with immediate", Rc, Send, Last, [IMM_DT];
    RcSendOnly = 0x04, "RC SEND only", Rc, Send, Only, [];
    RcSendOnlyImm = 0x05, "RC SEND only with immediate", Rc, Send, Only, [IMM_DT];
    RcWriteFirst = 0x06, "RC WRITE first", Rc, Write, First, [RETH];
    RcWriteMiddle = 0x07, "RC WRITE middle", Rc, Write, Middle, [];
    RcWriteLast = 0x08, "RC WRITE last", Rc, Write, Last, [];
    RcWriteLastImm = 0x09, "RC WRITE last with immediate", Rc, Write, Last, [IMM_DT];
    RcWriteOnly = 0x0a, "RC WRITE only", Rc, Write, Only, [RETH];
    RcWriteOnlyImm = 0x0b, "RC WRITE only with immediate", Rc, Write, Only, [RETH IMM_DT];
    RcReadRequest = 0x0c, "RC READ request", Rc, ReadRequest, Only, [RETH];
    RcReadResponseFirst = 0x0d, "RC READ response first", Rc, ReadResponse, First, [AETH];
    RcReadResponseMiddle = 0x0e, "RC READ response middle", Rc, ReadResponse, Middle, [];
    RcReadResponseLast = 0x0f, "RC READ response last", Rc, ReadResponse, Last, [AETH];
    RcReadResponseOnly = 0x10, "RC READ response only", Rc, ReadResponse, Only, [AETH];
    RcAck = 0x11, "RC ACK", Rc, Ack, Only, [AETH];
    RcAtomicAck = 0x12, "RC ATOMIC ACK", Rc, AtomicAck, Only, [AETH ATOMIC_ACK_ETH];
    RcCompareSwap = 0x13, "RC COMPARE SWAP", Rc, CompareSwap, Only, [ATOMIC_ETH];
    RcFetchAdd = 0x14, "RC FETCH ADD", Rc, FetchAdd, Only, [ATOMIC_ETH];
    RcSendLastInvalidate = 0x16, "RC SEND last with invalidate", Rc, Send, Last, [IETH];
    RcSendOnlyInvalidate = 0x17, "RC SEND only with invalidate", Rc, Send, Only, [IETH];
    UcSendFirst = 0x20, "UC SEND first", Uc, Send, First, [];
    UcSendMiddle = 0x21, "UC SEND middle", Uc, Send, Middle, [];
    UcSendLast = 0x22, "UC SEND last", Uc, Send, Last, [];
    UcSendLastImm = 0x23, "UC SEND last with immediate", Uc, Send, Last, [IMM_DT];
    UcSendOnly = 0x24, "UC SEND only", Uc, Send, Only, [];
    UcSendOnlyImm = 0x25, "UC SEND only with immediate", Uc, Send, Only, [IMM_DT];
    UcWriteFirst = 0x26, "UC WRITE first", Uc, Write, First, [RETH];
    UcWriteMiddle = 0x27, "UC WRITE middle", Uc, Write, Middle, [];
    UcWriteLast = 0x28, "UC WRITE last", Uc, Write, Last, [];
    UcWriteLastImm = 0x29, "UC WRITE last with immediate", Uc, Write, Last, [IMM_DT];
    UcWriteOnly = 0x2a, "UC WRITE only", Uc, Write, Only, [RETH];
    UcWriteOnlyImm = 0x2b, "UC WRITE only with immediate", Uc, Write, Only, [RETH IMM_DT];
    UdSendOnly = 0x64, "UD SEND only", Ud, Send, Only, [DETH];
    UdSendOnlyImm = 0x65, "UD SEND only with immediate", Ud, Send, Only, [DETH IMM_DT];
    Cnp = 0x81, "CNP", Cnp, Cnp, Only, [];
    XrcSendFirst = 0xa0, "XRC SEND first", Xrc, Send, First, [XRC_ETH];
    XrcSendMiddle = 0xa1, "XRC SEND middle", Xrc, Send, Middle, [XRC_ETH];
    XrcSendLast = 0xa2, "XRC SEND last", Xrc, Send, Last, [XRC_ETH];
    XrcSendLastImm = 0xa3, "XRC SEND last with immediate", Xrc, Send, Last, [XRC_ETH IMM_DT];
    XrcSendOnly = 0xa4, "XRC SEND only", Xrc, Send, Only, [XRC_ETH];
    XrcSendOnlyImm = 0xa5, "XRC SEND only with immediate", Xrc, Send, Only, [XRC_ETH IMM_DT];
    XrcWriteFirst = 0xa6, "XRC WRITE first", Xrc, Write, First, [XRC_ETH RETH];
    XrcWriteMiddle = 0xa7, "XRC WRITE middle", Xrc, Write, Middle, [XRC_ETH];
    XrcWriteLast = 0xa8, "XRC WRITE last", Xrc, Write, Last, [XRC_ETH];
    XrcWriteLastImm = 0xa9, "XRC WRITE last with immediate", Xrc, Write, Last, [XRC_ETH IMM_DT];
    XrcWriteOnly = 0xaa, "XRC WRITE only", Xrc, Write, Only, [XRC_ETH RETH];
    XrcWriteOnlyImm = 0xab, "XRC WRITE only with immediate", Xrc, Write, Only, [XRC_ETH RETH IMM_DT];
    XrcReadRequest = 0xac, "XRC READ request", Xrc, ReadRequest, Only, [XRC_ETH RETH];
    XrcReadResponseFirst = 0xad, "XRC READ response first", Xrc, ReadResponse, First, [AETH];
    XrcReadResponseMiddle = 0xae, "XRC READ response middle", Xrc, ReadResponse, Middle, [];
    XrcReadResponseLast = 0xaf, "XRC READ response last", Xrc, ReadResponse, Last, [AETH];
    XrcReadResponseOnly = 0xb0, "XRC READ response only", Xrc, ReadResponse, Only, [AETH];
    XrcAck = 0xb1, "XRC ACK", Xrc, Ack, Only, [AETH];
    XrcAtomicAck = 0xb2, "XRC ATOMIC ACK", Xrc, AtomicAck, Only, [AETH ATOMIC_ACK_ETH];
    XrcCompareSwap = 0xb3, "XRC COMPARE SWAP", Xrc, CompareSwap, Only, [XRC_ETH ATOMIC_ETH];
    XrcFetchAdd = 0xb4, "XRC FETCH ADD", Xrc, FetchAdd, Only, [XRC_ETH ATOMIC_ETH];
    XrcSendLastInvalidate = 0xb6, "XRC SEND last with invalidate", Xrc, Send, Last, [XRC_ETH IETH];
    XrcSendOnlyInvalidate = 0xb7, "XRC SEND only with invalidate", Xrc, Send, Only, [XRC_ETH IETH];
}

/// Upper bits of the opcodes of XRC.
const XRC: u8 = 0xa0;

impl Opcode {
    /// Returns its code.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the XRC opcode with the same verb and position as an RC opcode.
    #[inline]
    #[must_use]
    pub const fn as_xrc(self) -> Self {
        // IBTA table 38: the service is the upper three bits, the operation the lower five.
        match Self::from_code(XRC | self.code()) {
            Some(xrc) => xrc,
            None => self,
        }
    }

    /// Whether a payload may follow the headers.
    #[inline]
    pub const fn may_have_payload(self) -> bool {
        // A CNP has 16 reserved bytes after the header.
        matches!(
            self.verb(),
            Verb::Send | Verb::Write | Verb::ReadResponse | Verb::Cnp
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_name_their_service() {
        for code in 0..=255 {
            let Some(opcode) = Opcode::from_code(code) else {
                continue;
            };
            assert_eq!(opcode.code(), code);
            let service = match code >> 5 {
                0 => Service::Rc,
                1 => Service::Uc,
                3 => Service::Ud,
                5 => Service::Xrc,
                _ => Service::Cnp,
            };
            assert_eq!(opcode.service(), service, "{}", opcode.name());
        }
        assert_eq!(Opcode::ALL.len(), 61);
    }

    #[test]
    fn xrc_has_the_packets_of_rc_and_its_requests_name_a_queue() {
        let (rc, xrc): (Vec<Opcode>, Vec<Opcode>) = Opcode::ALL
            .iter()
            .filter(|opcode| matches!(opcode.service(), Service::Rc | Service::Xrc))
            .copied()
            .partition(|opcode| opcode.service() == Service::Rc);
        let translated: Vec<_> = rc.iter().map(|opcode| opcode.as_xrc()).collect();
        assert_eq!(xrc, translated);
        for (rc, xrc) in rc.into_iter().zip(xrc) {
            assert_eq!((rc.verb(), rc.position()), (xrc.verb(), xrc.position()));
            let own = match rc.verb().is_response() {
                true => Headers::empty(),
                false => Headers::XRC_ETH,
            };
            assert_eq!(xrc.headers(), rc.headers() | own);
        }
    }

    #[test]
    fn the_first_packet_of_a_write_has_its_address() {
        for opcode in Opcode::ALL {
            let addressed = opcode.headers().contains(Headers::RETH);
            let begins = opcode.verb() == Verb::Write && opcode.position().begins();
            assert_eq!(addressed, begins || opcode.verb() == Verb::ReadRequest);
        }
    }
}
