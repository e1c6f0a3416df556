//! What a request must say when it is executed again.

use wire::lock::LockWant;
use wire::mdt::{CreateRequest, DirStriping, Met};
use wire::{ComponentHint, LayoutHint, MdtReply, MdtRequest, Reply, Request};

/// What the target chose must be the same when the request is executed again.
pub fn fill_for_replay(request: &mut Request, reply: &Reply) {
    let (entry, made) = match reply {
        Reply::Mdt(MdtReply::RemovedMet { met, .. }) => return put_met(request, *met),
        Reply::Mdt(MdtReply::Entry(entry) | MdtReply::WithData { entry, .. }) => (entry, None),
        Reply::Mdt(MdtReply::Striped { entry, stripes }) => (entry, Some(stripes)),
        _ => return,
    };
    // Its objects may have data by then: they stay where they are.
    let hint = entry.layout.as_ref().map(hint_of);
    match request {
        Request::Mdt(MdtRequest::Create(CreateRequest { open: Some(open), creds, .. }))
            if !entry.was_created && entry.attr.is_some() =>
        {
            // What was there is not made by a replay, and no other one is opened.
            let (fid, open, creds, want) = (entry.fid, *open, creds.clone(), LockWant::default());
            *request = Request::Mdt(MdtRequest::Open {
                fid,
                open,
                creds,
                want,
                closes: Vec::new(),
                accesses: Vec::new(),
            });
        }
        Request::Mdt(MdtRequest::Create(create)) => {
            create.fid = Some(entry.fid);
            create.layout = hint.or(create.layout.take());
            if let Some(stripes) = made {
                // By the default of its parent, which may be another one by then.
                let (create, striping) = (create.clone(), DirStriping::default());
                *request =
                    Request::Mdt(MdtRequest::MakeStriped { create, striping, stripes: stripes.clone() });
            }
        }
        Request::Mdt(MdtRequest::MakeStriped { create, stripes, .. }) => {
            create.fid = Some(entry.fid);
            stripes.clone_from(made.unwrap_or(&Vec::new()));
        }
        Request::Mdt(MdtRequest::SetLayout { layout, .. }) => {
            *layout = hint.unwrap_or_else(|| layout.clone());
        }
        _ => {}
    }
}

fn put_met(request: &mut Request, met: Met) {
    if let Request::Mdt(changing) = request {
        let taken = std::mem::replace(changing, MdtRequest::Statfs);
        *changing = taken.with_met(met);
    }
}

/// What leads to the same layout again.
fn hint_of(layout: &base::Layout) -> LayoutHint {
    let hint_of = |component: &base::layout::Component| ComponentHint {
        end_bytes: Some(component.end_bytes).filter(|end| *end != base::Extent::EOF),
        stripe_size_bytes: Some(component.stripe_size_bytes),
        stripe_count: None,
        first_ost: None,
        osts: component.osts.clone(),
        pool: component.pool.clone(),
    };
    LayoutHint { components: layout.components.iter().map(hint_of).collect() }
}
