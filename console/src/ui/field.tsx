import { type ComponentProps, type ReactNode, useId } from 'react';
import {
  Button,
  type Key,
  Label,
  ListBox,
  ListBoxItem,
  Popover,
  Select,
  SelectValue,
} from 'react-aria-components';
import { ChevronIcon } from './icons';

export interface FieldProps extends Omit<ComponentProps<'input'>, 'onChange' | 'value'> {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly hint?: ReactNode;
  readonly error?: string | null | undefined;
  readonly mono?: boolean;
}

/** A labelled line of text. The hint says the unit and what empty means; the error replaces it. */
export function Field({ label, value, onChange, hint, error, mono = false, ...rest }: FieldProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input
        {...rest}
        id={id}
        className={mono ? 'mono' : undefined}
        value={value}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => onChange(event.target.value)}
        aria-invalid={error ? true : undefined}
        aria-describedby={hint || error ? `${id}-note` : undefined}
      />
      {(hint || error) && (
        <p id={`${id}-note`} className={error ? 'note bad' : 'note'}>
          {error ?? hint}
        </p>
      )}
    </div>
  );
}

interface ChoiceProps<T extends string> {
  readonly label: string;
  readonly value: T;
  readonly options: readonly { readonly id: T; readonly label: string; readonly about?: string }[];
  readonly onChange: (value: T) => void;
  readonly hint?: ReactNode;
  readonly hideLabel?: boolean;
}

/** One of several. */
export function Choice<T extends string>({
  label,
  value,
  options,
  onChange,
  hint,
  hideLabel,
}: ChoiceProps<T>) {
  return (
    <div className="field">
      <Select value={value} onChange={(key: Key | null) => key !== null && onChange(String(key) as T)}>
        <Label className={hideLabel ? 'visually-hidden' : 'react-aria-Label'}>{label}</Label>
        <Button className="select">
          <SelectValue>{() => options.find(({ id }) => id === value)?.label}</SelectValue>
          <ChevronIcon />
        </Button>
        <Popover className="popover" offset={4}>
          <ListBox className="options">
            {options.map(({ id, label: text, about }) => (
              <ListBoxItem key={id} id={id} textValue={text} className="option">
                <span>{text}</span>
                {about && <span className="option-about">{about}</span>}
              </ListBoxItem>
            ))}
          </ListBox>
        </Popover>
      </Select>
      {hint && <p className="note">{hint}</p>}
    </div>
  );
}

interface CheckProps {
  readonly label: string;
  readonly checked: boolean;
  readonly onChange: (checked: boolean) => void;
  readonly hint?: ReactNode;
  readonly error?: string | null | undefined;
}

/** Yes or no. The error replaces the hint. */
export function Check({ label, checked, onChange, hint, error }: CheckProps) {
  const id = useId();
  return (
    <div className="field check">
      <input
        id={id}
        type="checkbox"
        checked={checked}
        onChange={(event) => onChange(event.target.checked)}
        aria-invalid={error ? true : undefined}
        aria-describedby={hint || error ? `${id}-note` : undefined}
      />
      <label htmlFor={id}>{label}</label>
      {(hint || error) && (
        <p id={`${id}-note`} className={error ? 'note bad' : 'note'}>
          {error ?? hint}
        </p>
      )}
    </div>
  );
}

interface SegmentsProps<T extends string> {
  readonly label: string;
  readonly value: T;
  readonly options: readonly { readonly id: T; readonly label: string; readonly disabled?: boolean }[];
  readonly onChange: (value: T) => void;
}

/** Two to four choices side by side. */
export function Segments<T extends string>({ label, value, options, onChange }: SegmentsProps<T>) {
  const name = useId();
  return (
    <fieldset className="segments">
      <legend className="visually-hidden">{label}</legend>
      {options.map(({ id, label: text, disabled }) => (
        <label key={id}>
          <input
            type="radio"
            className="visually-hidden"
            name={name}
            checked={value === id}
            disabled={disabled}
            onChange={() => onChange(id)}
          />
          <span>{text}</span>
        </label>
      ))}
    </fieldset>
  );
}
