//! Sends a partition's blocks to its worker: requests a place, writes the block there, and reports that it is filled.

use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::Duration;

use dunlin::{CallError, Client, Preset, Secret, Transfer};

use crate::error::WorkError;
use crate::intake::{Intake, Place, END, FILLED, REGION, RESERVE};

/// Where blocks come from, and where they are returned to be filled again.
pub(crate) struct Blocks {
    pub(crate) full: Receiver<Vec<u8>>,
    pub(crate) empty: Sender<Vec<u8>>,
}

impl Blocks {
    fn each(self, mut put: impl FnMut(&[u8]) -> Result<(), WorkError>) -> Result<(), WorkError> {
        for mut block in self.full {
            put(&block)?;
            block.clear();
            // When there are no more records nobody receives it.
            let _ = self.empty.send(block);
        }
        Ok(())
    }
}

/// Sends blocks to this worker itself.
pub(crate) fn send_here(
    intake: &Arc<Intake>,
    number: usize,
    blocks: Blocks,
) -> Result<(), WorkError> {
    let memory = intake.memory()?;
    blocks.each(|block| {
        let (tell, told) = channel();
        let taker = move |place| drop(tell.send(place));
        intake.reserve(block.len(), Box::new(taker));
        let place = told.recv().map_err(|_| WorkError::Panicked)?;
        let place: Place = place.map_err(WorkError::Spill)?;
        memory.write(place.offset as usize, block);
        intake.filled(place.number);
        Ok(())
    })?;
    intake.end(number);
    Ok(())
}

/// How workers reach each other.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    pub(crate) device: String,
    pub(crate) preset: Preset,
    pub(crate) secret: Secret,
    pub(crate) patience: Duration,
}

/// Sends blocks to another worker: `worker` is its number, from 1 on, and `number` our own, from 0 on.
pub(crate) fn send_there(
    reach: &Reach,
    (worker, address): (usize, &str),
    number: usize,
    blocks: Blocks,
) -> Result<(), WorkError> {
    let client = Client::builder()
        .preset(reach.preset)
        .device(&reach.device)
        .secret(reach.secret.clone())
        .deadline(reach.patience)
        .connect(address)
        .map_err(|source| WorkError::Connect { worker, source })?;
    let failed = |source: CallError| WorkError::Call { worker, source };
    let region = client.attach(REGION).map_err(failed)?;
    let mut transfer = region.transfer();
    blocks.each(|block| put(&client, &mut transfer, worker, block))?;
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    client.call(END, &number.to_le_bytes()).map_err(failed)?;
    Ok(())
}

fn put(
    client: &Client,
    transfer: &mut Transfer<'_>,
    worker: usize,
    block: &[u8],
) -> Result<(), WorkError> {
    let failed = |source: CallError| WorkError::Call { worker, source };
    let bytes = u32::try_from(block.len()).unwrap_or(u32::MAX);
    let place = client.call(RESERVE, &bytes.to_le_bytes()).map_err(failed)?;
    let words = place.split_first_chunk::<8>().zip(place.last_chunk());
    let Some(((number, _), offset)) = words.filter(|_| place.len() == 16) else {
        let what = "an invalid reservation";
        return Err(WorkError::Nonsense { worker, what });
    };
    let put = transfer.put(u64::from_le_bytes(*offset), block);
    put.map_err(|source| WorkError::Transfer { worker, source })?;
    client.call(FILLED, number).map_err(failed)?;
    Ok(())
}
