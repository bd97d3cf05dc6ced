import { useQueryClient } from '@tanstack/react-query';
import { useParams } from '@tanstack/react-router';
import { answered } from '../api/answered';
import { topicUrl } from '../api/client';
import { changeTopic, describeTopic, topicKey, useTopic, versionOf } from '../api/topics';
import { ConfigEditor } from '../edit/editor';
import { draftOf, readDraft } from '../topics/config';
import { ClosedField, OtherFields, RetentionFields, SafetyFields } from '../topics/fields';

export function ConfigTab() {
  const { ns, topic: name } = useParams({ from: '/ns/$ns/topics/$topic' });
  const client = useQueryClient();
  const { data } = useTopic(ns, name);
  if (!data) return null;
  return (
    <ConfigEditor
      key={data.topic.incarnation}
      first={versionOf(data)}
      latest={versionOf(data)}
      url={topicUrl(ns, name)}
      draftOf={draftOf}
      readDraft={readDraft}
      save={async (etag, patch) => {
        const now = await changeTopic(ns, name, etag, patch);
        await answered(client, topicKey(ns, name), now);
        return versionOf(now);
      }}
      read={async () => versionOf(await describeTopic(ns, name))}
    >
      {(fields) => (
        <>
          <h2>Safety</h2>
          <SafetyFields {...fields} />
          <h2>Retention</h2>
          <RetentionFields {...fields} />
          <h2>Messages</h2>
          <OtherFields {...fields} />
          <ClosedField {...fields} />
        </>
      )}
    </ConfigEditor>
  );
}
