import { Field, type FieldProps } from '../ui/field';

/** A place in a partition. What is missing is not called wrong before something was typed. */
export function OffsetField({ error, ...props }: Omit<FieldProps, 'label' | 'mono' | 'inputMode'>) {
  return (
    <Field label="Offset" mono inputMode="numeric" error={props.value === '' ? null : error} {...props} />
  );
}
