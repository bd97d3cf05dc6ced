import { curl, type Request } from '../curl/curl';
import { CopyButton } from '../ui/copy';

interface PreviewActionsProps {
  /** What it asks the gateway for. */
  readonly request: () => Request;
  /** The preview is shown: the button that acts is the one to be pressed next. */
  readonly shown: boolean;
  readonly done: boolean;
  readonly disabled?: boolean;
  readonly pending?: boolean | undefined;
  readonly autoFocus?: boolean;
  readonly onClose: () => void;
}

/** The buttons of a form that says what it would do before it does it. */
export function PreviewActions({ request, shown, done, pending, onClose, ...rest }: PreviewActionsProps) {
  return (
    <div className="actions">
      <CopyButton text={() => curl(request())} label="Copy as curl" />
      <span className="spacer" />
      <button type="button" onClick={onClose}>
        {done ? 'Close' : 'Cancel'}
      </button>
      <button type="submit" className={shown ? '' : 'primary'} aria-disabled={pending} {...rest}>
        Preview
      </button>
    </div>
  );
}
