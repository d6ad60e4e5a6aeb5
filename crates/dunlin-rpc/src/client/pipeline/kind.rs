//! The two kinds of lane of a pipeline whose server may request datagrams: it keeps both, and changes to the other when
//! requested.

use super::next_lane::Making;
use super::Pipeline;
use crate::client::other_lane::OtherLane;
use crate::client::recipe::Successor;
use crate::lanes::Owner;

/// The state; see the module.
#[derive(Default)]
pub(super) struct Kinds {
    pub(super) other: OtherLane,
    /// The former lane becomes the other one when it has no outstanding calls.
    keeps_former: bool,
    /// It is polled as a task, whose executor must not wait for a handshake: only existing lanes are used.
    pub(super) is_task: bool,
}

impl Kinds {
    /// A lane of another recipe has replaced both; how it is polled remains.
    pub(super) fn forget(&mut self) {
        *self = Self {
            is_task: self.is_task,
            ..Self::default()
        };
    }
}

impl Pipeline {
    /// Whether the lane that it is to change to exists or may be made.
    #[cold]
    pub(super) fn may_go(&mut self, to: Successor) -> bool {
        match to {
            Successor::Another => !self.making.as_ref().is_some_and(Making::is_awaited),
            Successor::OtherKind => !self.kind.is_task || self.kind.other.is_here(),
        }
    }

    /// Changes to the lane of the other kind, which is made if there is none. If that fails, the pipeline keeps the
    /// present one.
    pub(super) fn change_kind(&mut self) {
        let owner = (Owner::Alone, self.window);
        let lane = self.lane.as_ref();
        let Some(other) = self.kind.other.take(&self.recipe, lane, owner, None) else {
            return;
        };
        self.former = Some(std::mem::replace(&mut self.lane, other));
        self.waiting.leave_lane();
        self.kind.keeps_former = true;
        if self
            .former
            .as_ref()
            .is_some_and(|former| former.outstanding() == 0)
        {
            self.end_former();
        }
    }

    /// To be called when nothing is outstanding on the former lane any more.
    pub(super) fn end_former(&mut self) {
        let former = self.former.take();
        let is_kept = std::mem::take(&mut self.kind.keeps_former);
        if let Some(former) = former.filter(|_| is_kept) {
            self.kind.other.keep(former);
        }
    }

    /// Whether its lane supports operations on the server's memory, or has been replaced by one that does.
    pub(super) fn reaches_memory(&mut self) -> bool {
        self.change_if_left();
        self.successor().is_none()
    }
}
