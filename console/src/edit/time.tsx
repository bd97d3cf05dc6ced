import { useSettings } from '../app/settings';
import { zoneName } from '../format/time';
import { Field, type FieldProps } from '../ui/field';

/** An instant, in the zone that all times are written in. */
export function TimeField(props: Omit<FieldProps, 'label' | 'mono'>) {
  const { zone } = useSettings();
  return <Field label={`Time, ${zoneName(zone)}`} mono {...props} />;
}
