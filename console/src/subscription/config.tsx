import { useQueryClient } from '@tanstack/react-query';
import { useParams } from '@tanstack/react-router';
import { answered } from '../api/answered';
import { subscriptionUrl } from '../api/client';
import {
  changeSubscription,
  describeSubscription,
  subscriptionKey,
  useSubscription,
  versionOf,
} from '../api/subscriptions';
import { ConfigEditor } from '../edit/editor';
import { draftOf, isStream, readDraft } from '../subscriptions/config';
import { ChoiceFields, LeaseFields, PatienceField, PausedField, RetryFields } from '../subscriptions/fields';

export function ConfigTab() {
  const { ns, subscription: name } = useParams({ from: '/ns/$ns/subscriptions/$subscription' });
  const client = useQueryClient();
  const { data } = useSubscription(ns, name);
  if (!data) return null;
  return (
    <ConfigEditor
      key={data.subscription.id}
      first={versionOf(data)}
      latest={versionOf(data)}
      url={subscriptionUrl(ns, name)}
      draftOf={draftOf}
      readDraft={readDraft}
      save={async (etag, patch) => {
        const now = await changeSubscription(ns, name, etag, patch);
        await answered(client, subscriptionKey(ns, name), now);
        return versionOf(now);
      }}
      read={async () => versionOf(await describeSubscription(ns, name))}
    >
      {(fields) =>
        isStream(data.subscription.config) ? (
          <>
            <h2>Readers</h2>
            <PatienceField {...fields} />
            <PausedField {...fields} />
          </>
        ) : (
          <>
            <h2>Which messages</h2>
            <ChoiceFields {...fields} />
            <h2>Leases</h2>
            <LeaseFields {...fields} />
            <PausedField {...fields} />
            <h2>Retries and dead letters</h2>
            <RetryFields ns={ns} {...fields} />
          </>
        )
      }
    </ConfigEditor>
  );
}
