import type { ReactNode } from 'react';
import { Dialog, Heading, Modal, ModalOverlay } from 'react-aria-components';
import { CloseIcon } from './icons';

interface SheetProps {
  readonly title: string;
  readonly open: boolean;
  readonly onClose: () => void;
  /** `center`: a question; `side`: work beside what is seen. */
  readonly place?: 'center' | 'side';
  /** A dialog that must be answered is not closed by a click beside it. */
  readonly alert?: boolean;
  readonly children: ReactNode;
}

/** Focus moves in, stays in, and goes back to where it was. Escape closes this layer only. */
export function Sheet({ title, open, onClose, place = 'center', alert = false, children }: SheetProps) {
  return (
    <ModalOverlay
      className={`overlay ${place}`}
      isOpen={open}
      isDismissable={!alert}
      onOpenChange={(next) => !next && onClose()}
    >
      <Modal className={`sheet ${place}`}>
        <Dialog className="sheet-body" role={alert ? 'alertdialog' : 'dialog'}>
          <div className="sheet-head">
            <Heading slot="title">{title}</Heading>
            <button type="button" className="quiet icon-only" aria-label="Close" onClick={onClose}>
              <CloseIcon />
            </button>
          </div>
          {children}
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}
