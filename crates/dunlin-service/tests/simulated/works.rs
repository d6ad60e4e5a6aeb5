//! Services of the first server whose handlers are no futures: on workers, which wait, and on the polling thread.

use std::time::Duration;

use dunlin::thread;
use dunlin_service::codec::Prost;
use dunlin_service::{Request, Response, Status};

use crate::service::back_client::BackBlockingClient;
use crate::service::{Note, Running, Service};
use quick_server::SyncQuick;
use works_server::SyncWorks;

dunlin_service::service! {
    /// On workers.
    pub service Works = "simulated.Works" with Prost {
        /// The same note, after `of` microseconds.
        rpc work as Work(Note) -> Note;
        /// As `relay` of `Front`.
        rpc delegate as Delegate(Note) -> Note;
    }
}

dunlin_service::service! {
    /// On the polling thread.
    pub service Quick = "simulated.Quick" with Prost {
        /// The same note.
        rpc echo as Echo(Note) -> Note;
    }
}

/// How late a worker may begin a call: between its look at the deadline and the handler others may have the core of a
/// slow host.
const LATE: Duration = Duration::from_millis(20);

impl SyncWorks for Service {
    fn work(
        &self,
        request: &mut Request<Note>,
        response: &mut Response<Note>,
    ) -> Result<(), Status> {
        let _running = self.begin(request);
        thread::sleep(Duration::from_micros(request.get_ref().of));
        std::mem::swap(response.get_mut(), request.get_mut());
        Ok(())
    }

    fn delegate(
        &self,
        request: &mut Request<Note>,
        response: &mut Response<Note>,
    ) -> Result<(), Status> {
        let _running = self.begin(request);
        let back = BackBlockingClient::new(self.to_back()?);
        *response.get_mut() = back.look(request.get_ref().clone())?.into_inner();
        Ok(())
    }
}

impl SyncQuick for Service {
    fn echo(
        &self,
        request: &mut Request<Note>,
        response: &mut Response<Note>,
    ) -> Result<(), Status> {
        self.count_call(request.get_ref());
        response.get_mut().clone_from(request.get_ref());
        Ok(())
    }
}

impl Service {
    /// A worker has taken a call, whose caller still waits.
    fn begin(&self, request: &Request<Note>) -> Running {
        self.count_call(request.get_ref());
        let late = request
            .deadline()
            .map(|deadline| thread::now().saturating_duration_since(deadline));
        if let Some(late) = late.filter(|late| *late > LATE) {
            let what = format!("a worker began a call {late:?} after its deadline");
            self.seen().wrong.push(what);
        }
        self.enter()
    }
}
