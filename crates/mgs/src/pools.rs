//! Changes of pools. They take a configuration to the next one, or nothing is changed.

use base::{ClusterConfig, Pool, PoolName, Status, TargetId};
use wire::PoolChange;

const POOL_COUNT_MAX: usize = 1024;

/// # Errors
/// `NotFound` for a pool that does not exist, `Exists` for one that does, or that has the OST already; `NotEmpty` while a pool
/// that is to go has members; `NoDevice` for an OST that never registered, or is to leave a pool that it is not in; `Invalid`
/// when no OST is named; `NoSpace` for too many pools.
pub fn change(config: &mut ClusterConfig, name: &PoolName, change: &PoolChange) -> Result<(), Status> {
    let found = config.pools.binary_search_by(|pool| pool.name.cmp(name));
    match (change, found) {
        (PoolChange::New, Ok(_)) => Err(Status::Exists),
        (PoolChange::New, Err(_)) if config.pools.len() >= POOL_COUNT_MAX => Err(Status::NoSpace),
        (PoolChange::New, Err(index)) => {
            config.pools.insert(index, Pool { name: name.clone(), osts: Vec::new() });
            Ok(())
        }
        (_, Err(_)) => Err(Status::NotFound),
        (PoolChange::Destroy, Ok(index)) => {
            if config.pools.get(index).is_some_and(|pool| !pool.osts.is_empty()) {
                return Err(Status::NotEmpty);
            }
            config.pools.remove(index);
            Ok(())
        }
        (PoolChange::Add(osts) | PoolChange::Remove(osts), Ok(_)) if osts.is_empty() => Err(Status::Invalid),
        (PoolChange::Add(osts), Ok(index)) => {
            if osts.iter().any(|ost| config.target(TargetId::ost(*ost)).is_none()) {
                return Err(Status::NoDevice);
            }
            let Some(pool) = config.pools.get_mut(index) else { return Err(Status::NotFound) };
            osts.iter().try_for_each(|ost| match pool.osts.binary_search(ost) {
                Ok(_) => Err(Status::Exists),
                Err(at) => {
                    pool.osts.insert(at, *ost);
                    Ok(())
                }
            })
        }
        (PoolChange::Remove(osts), Ok(index)) => {
            let Some(pool) = config.pools.get_mut(index) else { return Err(Status::NotFound) };
            osts.iter().try_for_each(|ost| {
                let at = pool.osts.binary_search(ost).map_err(|_| Status::NoDevice)?;
                pool.osts.remove(at);
                Ok(())
            })
        }
    }
}
