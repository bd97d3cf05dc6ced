//! The one decision.

use super::{Grant, Grants, Op, Principal, Resource};

/// The principal lacks a grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("needs the grant `{op}` on {resource}")]
pub struct Denied {
    /// What it tried.
    pub op: Op,
    /// On what, as text: `gateway`, `ns/{ns}`, `ns/{ns}/topics/{topic}` or `ns/{ns}/subscriptions/{subscription}`.
    pub resource: String,
}

/// Decides whether `principal` may do `op` to `resource`. The only place where that is decided.
///
/// # Errors
/// [`Denied`] names the grant that is missing; the caller answers 403 and does nothing else.
pub fn authorize(principal: &Principal, op: Op, resource: &Resource<'_>) -> Result<(), Denied> {
    let allowed = match &*principal.grants {
        Grants::All => true,
        Grants::Only(grants) => grants.iter().any(|grant| allows(grant, op, resource)),
    };
    if allowed { Ok(()) } else { Err(Denied { op, resource: resource.to_string() }) }
}

fn allows(grant: &Grant, op: Op, resource: &Resource<'_>) -> bool {
    let is_whole = grant.topics.is_any() && grant.subscriptions.is_any();
    grant.ops.contains(op)
        && match resource {
            // What belongs to no namespace is granted by the operation alone: a grant for one topic may
            // carry `connect`, without which it could not be used over a WebSocket.
            Resource::Gateway => op_of_gateway(op) || (grant.namespaces.is_any() && is_whole),
            Resource::Namespace(namespace) => grant.namespaces.matches(namespace) && is_whole,
            Resource::Topic { namespace, topic } => {
                grant.namespaces.matches(namespace) && grant.topics.matches(topic)
            }
            Resource::Topics { namespace, prefix } => {
                grant.namespaces.matches(namespace) && grant.topics.covers(prefix)
            }
            Resource::Subscription { namespace, subscription } => {
                grant.namespaces.matches(namespace) && grant.subscriptions.matches(subscription)
            }
        }
}

const fn op_of_gateway(op: Op) -> bool {
    matches!(op, Op::Status | Op::Connect | Op::Metrics)
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::Name;

    use super::*;
    use crate::auth::{OpSet, Pattern};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn publisher() -> Principal {
        Principal::with_grants(
            Name::default_name(),
            vec![Grant {
                namespaces: Pattern::new("shop"),
                topics: Pattern::new("orders.*"),
                subscriptions: Pattern::new("billing"),
                ops: OpSet::of(&[Op::Publish, Op::Connect, Op::Consume]),
            }],
        )
    }

    #[test]
    fn a_grant_reaches_exactly_its_operations_and_names() {
        let (shop, other, orders) = (name("shop"), name("shopping"), name("orders.eu"));
        let topic = Resource::Topic { namespace: &shop, topic: &orders };
        assert_eq!(authorize(&publisher(), Op::Publish, &topic), Ok(()));
        let denied = authorize(&publisher(), Op::Subscribe, &topic).unwrap_err();
        assert_eq!(denied.to_string(), "needs the grant `subscribe` on ns/shop/topics/orders.eu");
        let elsewhere = Resource::Topic { namespace: &other, topic: &orders };
        assert!(authorize(&publisher(), Op::Publish, &elsewhere).is_err());
        let bare = name("orders");
        assert!(
            authorize(&publisher(), Op::Publish, &Resource::Topic { namespace: &shop, topic: &bare })
                .is_err()
        );
    }

    #[test]
    fn a_grant_reaches_subscriptions_by_their_own_names() {
        let (shop, billing, orders) = (name("shop"), name("billing"), name("orders.eu"));
        let subscription = Resource::Subscription { namespace: &shop, subscription: &billing };
        assert_eq!(authorize(&publisher(), Op::Consume, &subscription), Ok(()));
        let other = Resource::Subscription { namespace: &shop, subscription: &orders };
        let denied = authorize(&publisher(), Op::Consume, &other).unwrap_err();
        assert_eq!(denied.to_string(), "needs the grant `consume` on ns/shop/subscriptions/orders.eu");
        let topic = Resource::Topic { namespace: &shop, topic: &billing };
        assert!(
            authorize(&publisher(), Op::Publish, &topic).is_err(),
            "a topic of that name is another thing"
        );
    }

    #[test]
    fn a_grant_for_some_topics_says_nothing_about_their_namespace_or_the_gateway() {
        let shop = name("shop");
        assert!(authorize(&publisher(), Op::Publish, &Resource::Namespace(&shop)).is_err());
        assert!(authorize(&publisher(), Op::Publish, &Resource::Gateway).is_err());
        assert_eq!(authorize(&publisher(), Op::Connect, &Resource::Gateway), Ok(()));
    }

    #[test]
    fn no_grants_allow_nothing_and_all_grants_everything() {
        let none = Principal::with_grants(Name::default_name(), Vec::new());
        let all = Principal::all(Name::default_name());
        let (ns, topic) = (name("a"), name("b"));
        for &op in Op::ALL {
            for resource in [
                Resource::Gateway,
                Resource::Namespace(&ns),
                Resource::Topic { namespace: &ns, topic: &topic },
                Resource::Subscription { namespace: &ns, subscription: &topic },
            ] {
                assert!(authorize(&none, op, &resource).is_err(), "{op} {resource}");
                assert!(authorize(&all, op, &resource).is_ok(), "{op} {resource}");
            }
        }
    }
}
