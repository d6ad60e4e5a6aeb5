//! The store of the service in this process: what its handlers do, without the calls.

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_store::kv::{KvError, OrderedKvStore};
use dunlin_verbs::{Access, Device};

use super::{Answer, Engine, FirstError, Request};
use crate::commands::Failure;
use crate::services::kv::Settings;

/// The store, and the answer that was not taken yet: there is one operation at a time.
#[derive(Debug)]
pub struct Alone {
    store: OrderedKvStore<<ShmDevice as Device>::Region>,
    value: Vec<u8>,
    answer: Option<(u64, Answer)>,
    first_error: Option<FirstError>,
}

impl Alone {
    /// An empty store, as large as the service's.
    ///
    /// # Errors
    /// When the memory is too small, or the system has none.
    pub fn new(settings: &Settings) -> Result<Self, Failure> {
        let layout = settings.layout()?;
        let device = ShmDevice::open(ShmConfig::default()).map_err(Failure::new)?;
        let domain = device.create_protection_domain().map_err(Failure::new)?;
        let region = device.allocate_region(&domain, layout.bytes(), Access::LOCAL_WRITE);
        let store = OrderedKvStore::create(region.map_err(Failure::new)?, layout);
        Ok(Self {
            store: store.map_err(Failure::new)?,
            value: Vec::new(),
            answer: None,
            first_error: None,
        })
    }

    fn operate(&mut self, request: Request<'_>) -> Result<Answer, KvError> {
        let (store, value) = (&self.store, &mut self.value);
        Ok(match request {
            Request::Get(key) => {
                let Ok(found) = store.store().get(&store.store().key(key)?, value);
                match found {
                    true => Answer::Value(value.len()),
                    false => Answer::Missing,
                }
            }
            Request::Put(key, value) | Request::Insert(key, value) => {
                store.put(&store.store().key(key)?, value)?;
                Answer::Stored
            }
            Request::Scan(first, most) => {
                let (mut count, mut bytes) = (0, 0);
                store.scan(first, most as usize, |key| {
                    let Ok(found) = store.store().get(key, value);
                    if found {
                        count += 1;
                        bytes += value.len();
                    }
                    count < most as usize
                });
                Answer::Entries(count, bytes)
            }
        })
    }
}

impl Engine for Alone {
    #[inline]
    fn submit(&mut self, request: Request<'_>, tag: u64) -> Result<bool, Failure> {
        if self.answer.is_some() {
            return Ok(false);
        }
        let answer = self.operate(request).unwrap_or_else(|error| {
            let is_full = !matches!(error, KvError::KeyBytes(_) | KvError::ValueBytes { .. });
            let words = error.to_string();
            self.first_error
                .get_or_insert(FirstError { words, is_full });
            Answer::Failed
        });
        self.answer = Some((tag, answer));
        Ok(true)
    }

    #[inline]
    fn outstanding(&self) -> usize {
        usize::from(self.answer.is_some())
    }

    fn take_first_error(&mut self) -> Option<FirstError> {
        self.first_error.take()
    }

    #[inline]
    fn wait(&mut self, take: &mut impl FnMut(u64, Answer)) -> Result<(), Failure> {
        if let Some((tag, answer)) = self.answer.take() {
            take(tag, answer);
        }
        Ok(())
    }
}
