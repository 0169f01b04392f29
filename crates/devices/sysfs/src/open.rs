//! Words of the kernel, known and unknown.

use std::fmt;

use adverb_verbs::LinkLayer;

/// A word that this version knows, or the word itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Open<T> {
    /// A known one.
    Known(T),
    /// As the kernel wrote it.
    Other(String),
}

impl<T: Copy> Open<T> {
    /// The known word, if it is one.
    pub fn known(&self) -> Option<T> {
        match self {
            Open::Known(word) => Some(*word),
            Open::Other(_) => None,
        }
    }
}

impl<T: Copy + PartialEq> Open<T> {
    /// Whether it is this one.
    pub fn is(&self, word: T) -> bool {
        self.known() == Some(word)
    }
}

impl<T: fmt::Display> fmt::Display for Open<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Open::Known(word) => word.fmt(f),
            Open::Other(text) => f.pad(text),
        }
    }
}

/// What is written as `4: ACTIVE`: the number decides, the word is for people.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal, $word:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($name::$variant => $word,)* })
            }
        }

        impl From<&str> for Open<$name> {
            fn from(text: &str) -> Self {
                match text.split(':').next().map(str::trim) {
                    $(Some($number) => Open::Known($name::$variant),)*
                    _ => Open::Other(text.to_owned()),
                }
            }
        }
    };
}

numbered!(
    /// Logical state of a port (`ibv_port_state`; IBTA vol. 1, 7.2.7).
    PortState {
        /// No state change.
        Nop = "0", "NOP";
        /// The link is down.
        Down = "1", "DOWN";
        /// The link is up, the subnet manager has not configured the port.
        Init = "2", "INIT";
        /// Configured, not yet carrying data.
        Armed = "3", "ARMED";
        /// Carries data.
        Active = "4", "ACTIVE";
        /// Carries data, though the link is down for the moment.
        ActiveDefer = "5", "ACTIVE_DEFER";
    }
);

numbered!(
    /// Physical state of a port (IBTA vol. 1, 14.2.5.6).
    PhysState {
        /// No state change.
        Nop = "0", "no change";
        /// Not looking for a partner, saving power.
        Sleep = "1", "Sleep";
        /// Looking for a partner.
        Polling = "2", "Polling";
        /// The port is turned off.
        Disabled = "3", "Disabled";
        /// Negotiating with the partner.
        Training = "4", "PortConfigurationTraining";
        /// The link is up.
        LinkUp = "5", "LinkUp";
        /// Recovering from errors.
        Recovery = "6", "LinkErrorRecovery";
        /// The port runs a physical test.
        PhyTest = "7", "Phy Test";
    }
);

numbered!(
    /// What a device is in its network (`ibv_node_type`).
    NodeType {
        /// Channel adapter: InfiniBand or RoCE.
        ChannelAdapter = "1", "channel adapter";
        /// Switch.
        Switch = "2", "switch";
        /// Router.
        Router = "3", "router";
        /// iWARP.
        Rnic = "4", "RNIC";
        /// Cisco's usNIC.
        Usnic = "5", "usNIC";
        /// Cisco's usNIC over UDP.
        UsnicUdp = "6", "usNIC UDP";
        /// Neither (such as Amazon's EFA).
        Unspecified = "7", "unspecified";
    }
);

/// Parses a link layer. It is `Ethernet` for iWARP, too, so the node type decides.
pub(crate) fn link_layer(text: &str, node: &Open<NodeType>) -> Open<LinkLayer> {
    match text {
        "InfiniBand" => Open::Known(LinkLayer::InfiniBand),
        "Ethernet" if node.is(NodeType::Rnic) => Open::Known(LinkLayer::Iwarp),
        "Ethernet" => Open::Known(LinkLayer::Ethernet),
        other => Open::Other(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_decides_and_unknown_words_survive() {
        assert!(Open::<PortState>::from("4: ACTIVE").is(PortState::Active));
        let strange = Open::<PortState>::from("9: DREAMING");
        assert_eq!(strange.to_string(), "9: DREAMING");
        assert_eq!(strange.known(), None);
    }

    #[test]
    fn ethernet_of_an_rnic_is_iwarp() {
        let rnic = Open::from("4: RNIC");
        assert!(link_layer("Ethernet", &rnic).is(LinkLayer::Iwarp));
        assert_eq!(link_layer("Unknown", &rnic).to_string(), "Unknown");
    }
}
