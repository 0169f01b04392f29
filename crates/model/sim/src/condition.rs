//! Conditions: what roles wait for, by name.

use crate::role::RoleNumber;

/// Something that roles wait for and the world signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Condition(u32);

#[derive(Debug, Default)]
struct Slot {
    name: String,
    waiters: Vec<RoleNumber>,
}

/// All conditions of a simulation.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Conditions {
    pub(crate) fn make(&mut self, name: String) -> Condition {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize].name = name;
            return Condition(index);
        }
        self.slots.push(Slot {
            name,
            waiters: Vec::new(),
        });
        let index = u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 conditions");
        Condition(index)
    }

    pub(crate) fn end(&mut self, condition: Condition) {
        debug_assert!(self.slot(condition).waiters.is_empty());
        self.free.push(condition.0);
    }

    fn slot(&self, condition: Condition) -> &Slot {
        &self.slots[condition.0 as usize]
    }

    pub(crate) fn name(&self, condition: Condition) -> &str {
        &self.slot(condition).name
    }

    #[inline]
    pub(crate) fn waiters(&self, condition: Condition) -> &[RoleNumber] {
        &self.slot(condition).waiters
    }

    #[inline]
    pub(crate) fn add_waiter(&mut self, condition: Condition, role: RoleNumber) {
        self.slots[condition.0 as usize].waiters.push(role);
    }

    pub(crate) fn remove_waiter(&mut self, condition: Condition, role: RoleNumber) {
        self.slots[condition.0 as usize]
            .waiters
            .retain(|waiter| *waiter != role);
    }

    #[inline]
    pub(crate) fn take_waiters(&mut self, condition: Condition) -> Vec<RoleNumber> {
        std::mem::take(&mut self.slots[condition.0 as usize].waiters)
    }

    /// Gives the room of waiters back, so that it is not allocated again.
    #[inline]
    pub(crate) fn give_waiters(&mut self, condition: Condition, empty: Vec<RoleNumber>) {
        self.slots[condition.0 as usize].waiters = empty;
    }
}
