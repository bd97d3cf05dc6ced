//! A failure as clients see it.

use super::ServiceError;
use crate::api::Problem;

impl From<&ServiceError> for Problem {
    fn from(failure: &ServiceError) -> Self {
        let mut problem = Self::from(failure.refusal());
        if let (Some(partition), Some(current)) = (failure.partition, &mut problem.current) {
            current.partition = Some(partition.0);
        }
        problem.field = failure.field.map(str::to_owned);
        problem.limit = failure.limit;
        problem
    }
}

impl From<ServiceError> for Problem {
    fn from(failure: ServiceError) -> Self {
        Self::from(&failure)
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::error::ErrorCode;
    use weir_protocol::ids::PartitionId;
    use weir_protocol::rpc::Refusal;

    use super::*;

    #[test]
    fn everything_a_failure_knows_reaches_the_client() {
        let refusal = Refusal { tail: Some(9), ..Refusal::new(ErrorCode::TailMismatch, "moved") };
        let failure =
            ServiceError::from(refusal).with_partition(PartitionId(3)).with_field("if-match").with_limit(4);
        let problem = Problem::from(&failure);
        let current = problem.current.unwrap();
        assert_eq!((current.partition, current.tail), (Some(3), Some(9)));
        assert_eq!((problem.field.as_deref(), problem.limit), (Some("if-match"), Some(4)));
    }
}
