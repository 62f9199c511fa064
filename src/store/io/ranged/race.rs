//! Races two requests for the same bytes: the first complete response counts.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

pub(super) enum First<T> {
    Original(T),
    Hedge(T),
}

/// Waits for the first of two requests that succeeds. If both fail, returns the second failure.
pub(super) async fn race<T, E, O>(
    mut original: Pin<&mut impl Future<Output = Result<Result<T, E>, O>>>,
    mut hedge: Pin<&mut impl Future<Output = Result<Result<T, E>, O>>>,
) -> First<Result<Result<T, E>, O>> {
    let (mut original_failed, mut hedge_failed) = (false, false);
    poll_fn(move |context| {
        if !original_failed && let Poll::Ready(result) = original.as_mut().poll(context) {
            if matches!(result, Ok(Ok(_))) || hedge_failed {
                return Poll::Ready(First::Original(result));
            }
            original_failed = true;
        }
        if !hedge_failed && let Poll::Ready(result) = hedge.as_mut().poll(context) {
            if matches!(result, Ok(Ok(_))) || original_failed {
                return Poll::Ready(First::Hedge(result));
            }
            hedge_failed = true;
        }
        Poll::Pending
    })
    .await
}
