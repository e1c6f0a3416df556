//! The members of an etcd, asked one after the other.

use crate::KeeperError;
use crate::members::{Members, Unanswered};
use etcd_client::{Client, ConnectOptions, Error, KeyValue};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;

/// A member that answers later is as good as dead: the next one is asked. It leaves an owner with three members the time to ask them all.
const MEMBER_TIMEOUT: Duration = Duration::from_millis(800);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// A change waits for the choice of a new leader: all members are asked so often.
pub const CHANGE_ROUNDS: usize = 4;

pub struct Service {
    runtime: Runtime,
    members: Members,
    reached: Mutex<Reached>,
}

/// The member that answers.
#[derive(Default)]
struct Reached {
    index: usize,
    client: Option<Client>,
}

/// Why a question to a member ends without a result.
pub enum Failed {
    /// Another member may know better.
    Member(String),
    /// It has answered that it does not do this. The next one is asked all the same: what is wrong may be wrong with this one.
    Refused(String),
    Certain(KeeperError),
}

/// By their numbers in gRPC, what etcd answers when it understands a question and does not do it: INVALID_ARGUMENT (too large),
/// PERMISSION_DENIED, RESOURCE_EXHAUSTED (no space), FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, DATA_LOSS (corrupt),
/// UNAUTHENTICATED. The others may be of a connection, or of a member without a leader.
const REFUSALS: [i32; 8] = [3, 7, 8, 9, 11, 12, 15, 16];

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        match &error {
            Error::GRpcStatus(status) if REFUSALS.contains(&i32::from(status.code())) => {
                Failed::Refused(status.message().to_owned())
            }
            _ => Failed::Member(error.to_string()),
        }
    }
}

impl Service {
    /// Reaches nobody yet: whoever asks first is told.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(members: Members) -> Result<Service, KeeperError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()
            .map_err(KeeperError::NoRuntime)?;
        Ok(Service { runtime, members, reached: Mutex::default() })
    }

    /// Asks one member after the other, so many times each, until one answers.
    ///
    /// # Errors
    /// `EtcdSilent`, `EtcdRefuses` if that is what a member has answered, or what the question is certain of.
    pub fn ask<T>(
        &self,
        rounds: usize,
        question: impl AsyncFn(Client) -> Result<T, Failed>,
    ) -> Result<T, KeeperError> {
        let members: Vec<&str> = self.members.iter().collect();
        let mut unanswered = Unanswered::default();
        for _ in 0..rounds * members.len() {
            let (index, client) = {
                let reached = lock(&self.reached);
                (reached.index % members.len(), reached.client.clone())
            };
            let member = members.get(index).copied().unwrap_or_default();
            let asked = self.runtime.block_on(async {
                tokio::time::timeout(MEMBER_TIMEOUT, async {
                    let client = match client {
                        Some(client) => client,
                        None => connect(member).await?,
                    };
                    let answer = question(client.clone()).await?;
                    Ok::<_, Failed>((answer, client))
                })
                .await
            });
            match asked {
                Ok(Ok((answer, client))) => {
                    *lock(&self.reached) = Reached { index, client: Some(client) };
                    return Ok(answer);
                }
                Ok(Err(Failed::Certain(error))) => return Err(error),
                Ok(Err(Failed::Refused(why))) => unanswered.note_refusal(member, why),
                Ok(Err(Failed::Member(why))) => unanswered.note_silence(member, why),
                Err(_) => {
                    let why = format!("no answer in {} ms", MEMBER_TIMEOUT.as_millis());
                    unanswered.note_silence(member, why);
                }
            }
            let mut reached = lock(&self.reached);
            // Another thread may have gone on to the next one already.
            if reached.index % members.len() == index {
                *reached = Reached { index: index + 1, client: None };
            }
        }
        Err(unanswered.into_error(&self.members))
    }
}

async fn connect(member: &str) -> Result<Client, Error> {
    let options = ConnectOptions::new().with_connect_timeout(CONNECT_TIMEOUT);
    Client::connect([format!("http://{member}")], Some(options)).await
}

pub fn key_text(pair: &KeyValue) -> String {
    String::from_utf8_lossy(pair.key()).escape_default().to_string()
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
