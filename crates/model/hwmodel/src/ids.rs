//! Typed indices of a simulation's objects, and the tables that they index.

use std::marker::PhantomData;

/// A machine's number within its cluster, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u32);

/// A queue pair in one of its lives. Resetting a queue pair begins another life, so events and messages of
/// an earlier one no longer find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QpRef {
    pub(crate) index: QpIndex,
    pub(crate) life: u32,
}

impl QpRef {
    /// Refers to no queue pair.
    pub(crate) const NOBODY: QpRef = QpRef {
        index: QpIndex(u32::MAX),
        life: 0,
    };
}

/// The index of an item of a [`Table`].
pub(crate) trait Index: Copy {
    /// The index of the item at `place`.
    fn at(place: u32) -> Self;
    /// The item's place.
    fn place(self) -> usize;
}

macro_rules! index {
    ($name:ident) => {
        impl Index for $name {
            fn at(place: u32) -> Self {
                $name(place)
            }

            #[inline]
            fn place(self) -> usize {
                self.0 as usize
            }
        }
    };
}

macro_rules! indices {
    ($($(#[$doc:meta])+ $name:ident),+ $(,)?) => {$(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) u32);
        index!($name);
    )+};
}

index!(MachineId);
indices! {
    /// A queue pair's index in the simulation, the same in all its lives.
    QpIndex,
    /// A completion queue's number in the simulation.
    CqIndex,
    /// A shared receive queue's number in the simulation.
    SrqIndex,
    /// A completion channel's number in the simulation.
    ChannelIndex,
}

/// Items with typed indices, which are never removed.
#[derive(Debug)]
pub(crate) struct Table<I, T> {
    items: Vec<T>,
    index: PhantomData<I>,
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Table {
            items: Vec::new(),
            index: PhantomData,
        }
    }
}

impl<I: Index, T> Table<I, T> {
    pub(crate) fn new(items: Vec<T>) -> Self {
        Table {
            items,
            index: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.items.len() as u32
    }

    /// The index of the next item to be added.
    pub(crate) fn next_index(&self) -> I {
        I::at(self.len())
    }

    pub(crate) fn push(&mut self, item: T) -> I {
        let index = self.next_index();
        self.items.push(item);
        index
    }

    #[inline]
    pub(crate) fn get(&self, index: I) -> Option<&T> {
        self.items.get(index.place())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.items.get_mut(index.place())
    }

    /// Returns two items.
    ///
    /// # Panics
    /// If they are the same, or do not exist.
    pub(crate) fn two(&mut self, one: I, other: I) -> [&mut T; 2] {
        let items = self.items.get_disjoint_mut([one.place(), other.place()]);
        items.expect("two items of the table")
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }
}

impl<I: Index, T> std::ops::Index<I> for Table<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, index: I) -> &T {
        &self.items[index.place()]
    }
}

impl<I: Index, T> std::ops::IndexMut<I> for Table<I, T> {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.items[index.place()]
    }
}
