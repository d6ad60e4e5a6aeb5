//! The two kinds of lane of a pipeline whose server may ask for datagrams: it keeps both, and goes over to the other
//! when it is asked to.

use super::Pipeline;
use crate::client::other_lane::OtherLane;
use crate::client::recipe::Successor;
use crate::fabric::Owner;

/// See the module.
#[derive(Default)]
pub(super) struct Kinds {
    pub(super) other: OtherLane,
    /// The former lane is the other one when it is answered.
    keeps_former: bool,
    /// It is polled as a task, whose executor does not wait for a handshake: it uses the lanes that it has.
    pub(super) is_task: bool,
}

impl Kinds {
    /// Another recipe's lane has taken the place of those that there were; how it is polled stays.
    pub(super) fn forget(&mut self) {
        *self = Self {
            is_task: self.is_task,
            ..Self::default()
        };
    }
}

impl Pipeline {
    /// Whether there is, or may be had, what it is to go over to.
    #[cold]
    pub(super) fn may_go(&mut self, to: Successor) -> bool {
        !self.kind.is_task || to == Successor::Another || self.kind.other.is_here()
    }

    /// Goes over to the lane of the other kind, which is made if it is not there. Where there is none the pipeline
    /// keeps what it has.
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

    /// Nothing is out on the former lane any more.
    pub(super) fn end_former(&mut self) {
        let former = self.former.take();
        let is_kept = std::mem::take(&mut self.kind.keeps_former);
        if let Some(former) = former.filter(|_| is_kept) {
            self.kind.other.keep(former);
        }
    }

    /// Whether its lane is one for operations on the server's memory, or has been made so.
    pub(super) fn reaches_memory(&mut self) -> bool {
        self.change_if_left();
        self.successor().is_none()
    }
}
