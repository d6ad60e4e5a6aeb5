//! The two kinds of lane of a pipeline whose server may ask for datagrams: it keeps both, and goes over to the other when
//! it is asked to.

use dunlin_verbs::process::Owned;

use super::Pipeline;
use crate::call::lane::{Lane, NoCalls};
use crate::fabric::Owner;

/// See the module.
#[derive(Default)]
pub(super) struct Kinds {
    /// The lane of the other kind.
    aside: Option<Owned<Box<dyn Lane>>>,
    /// The former lane is kept aside when it is answered.
    keeps_former: bool,
    /// There was none of the other kind to be had.
    stays: bool,
    /// It is polled as a task, whose executor does not wait for a handshake: it uses the lanes that it has.
    pub(super) is_task: bool,
}

impl Pipeline {
    /// Whether there is, or may be had, what it is to go over to.
    #[cold]
    pub(super) fn may_go(&self) -> bool {
        let may_open = !self.kind.stays && !self.kind.is_task;
        may_open || self.kind.aside.is_some() || !self.recipe.goes_aside()
    }

    /// Goes over to the lane of the other kind, which is made if it is not there. Where there is none the pipeline keeps
    /// what it has.
    pub(super) fn change_kind(&mut self) {
        let other = self.kind.aside.take();
        let other = other.and_then(|mut lane| lane.is_usable().then_some(lane));
        let mut other = match other {
            Some(lane) => lane,
            None if !self.may_go() => return,
            None => {
                let owner = (Owner::Alone, self.window);
                match self.recipe.open_other(self.lane.as_ref(), owner, None) {
                    Ok(lane) => Owned::new(lane),
                    Err(error) => {
                        tracing::debug!(%error, "a pipeline keeps the kind of lane that it has");
                        self.kind.stays = true;
                        return;
                    }
                }
            }
        };
        // What the server has said there since it was used: a failure is for the next call to find.
        let _ = other.as_mut().check(&mut NoCalls);
        self.former = Some(std::mem::replace(&mut self.lane, other));
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
        if std::mem::take(&mut self.kind.keeps_former) {
            self.kind.aside = former;
        }
    }

    /// Whether its lane is one for operations on the server's memory, or has been made so.
    pub(super) fn reaches_memory(&mut self) -> bool {
        if self.is_left() {
            self.change();
        }
        !self.is_left()
    }
}
